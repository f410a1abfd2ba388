"""Choosing the fastest of several ways, also while a function is traced."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from eindecomp.kernels.torch.fastest import fastest_on  # noqa: E402


def slow(x):
    for _ in range(30):
        x = x @ x
    return x


def fails(x):
    raise RuntimeError("no kernel for that")


def test_the_faster_way_is_chosen():
    ways = {"fails": fails, "slow": slow, "fast": lambda x: x @ x}
    assert fastest_on("real", ways, [torch.ones(200, 200)]) == "fast"


def test_tracing_meets_nothing_that_is_measured():
    ways = {"slow": slow, "fast": lambda x: x @ x}

    def computed(x):
        return ways[fastest_on("traced", ways, [x])](x)

    with FakeTensorMode() as mode, torch.no_grad():
        graph = make_fx(computed)(mode.from_tensor(torch.ones(200, 200)))
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    assert len(calls) == 1


def test_what_was_measured_once_is_known():
    calls = []

    def way(x):
        calls.append(x.shape)

    for _ in range(3):
        assert fastest_on("once", {"way": way}, [torch.ones(3)]) == "way"
    before = len(calls)
    fastest_on("once", {"way": way}, [torch.ones(3)])
    assert len(calls) == before


def test_if_all_fail_it_is_the_first():
    assert fastest_on("none", {"fails": fails, "too": fails}, [torch.ones(3)]) == "fails"
