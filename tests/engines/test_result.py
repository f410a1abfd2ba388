"""Results are mappings that can be compared and kept in sets."""

from __future__ import annotations

import numpy as np

import eindecomp as ed


def test_a_result_is_equal_to_itself_alone():
    plan = ed.plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] * 2\noutput Z"), 2)
    one, other = (ed.run(plan, {"X": np.ones(8, np.float32)}) for _ in range(2))
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert list(one) == ["Z"]
