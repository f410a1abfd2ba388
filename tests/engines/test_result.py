"""Results are mappings that can be compared and kept in sets."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.errors import InputError


def test_a_result_is_equal_to_itself_alone():
    plan = ed.plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] * 2\noutput Z"), 2)
    one, other = (ed.run(plan, {"X": np.ones(8, np.float32)}) for _ in range(2))
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert list(one) == ["Z"]


def test_outputs_are_found_by_vertex_and_those_that_are_none_are_named():
    graph = ed.parse("input X[i: 8]\nscores[i] <- X[i] * 2\noutput scores")
    result = ed.run(ed.plan(graph, 2), {"X": np.ones(8, np.float32)})
    assert result[graph["scores"]] is result["scores"]
    assert result.tensor(graph["scores"]) is result.tensor("scores")
    with pytest.raises(KeyError, match="no output 'score'; did you mean 'scores'"):
        result["score"]
    with pytest.raises(KeyError, match="no output 'Q'; known: scores"):
        result["Q"]
    with pytest.raises(InputError, match="no output 3; known: scores"):
        result.tensor(3)
    assert "Q" not in result
    assert 3 not in result
    assert result.get("Q") is None
