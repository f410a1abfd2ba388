"""Steps under a limit on the GPU's memory, of which what is computed together is one graph."""

import numpy as np
import pytest
import torch
from test_captured_state import COMPUTED, GRAPH, TIE, Both

import eindecomp as ed

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.parametrize("graph", [GRAPH, COMPUTED], ids=["given", "computed"])
@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("donate", [(), (*TIE,)])
def test_steps_are_as_the_reference_says(bind, graph, donate):
    both = Both(bind, graph, gpu_memory="100MB")
    state, wanted = both.begin()
    for _ in range(6):  # which compares
        state, wanted, _ = both.step(state, wanted, donate=donate)
    with both.executable:
        arena = both.executable._prepared.runner.memory
        assert arena.graphs
        other, others = both.begin()
        for _ in range(3):
            other, others, _ = both.step(other, others, donate=donate)


def test_what_comes_and_goes_between_graphs():
    """Weights that do not fit all at once."""
    count, size = 24, 1024
    lines = [f"input X0[i: 64, a: {size}], SIZES[b: {size}]"]
    for k in range(count):
        a, b = "ab" if k % 2 == 0 else "ba"
        lines += [f"input W{k}[{a},{b}]", f"Z{k}[i,{b}] <- sum X{k}[i,{a}] * W{k}[{a},{b}]"]
        lines += [f"X{k + 1}[i,{b}] <- tanh(Z{k}[i,{b}])"]
    graph = ed.parse("\n".join([*lines, f"output X{count}"]))
    rng = np.random.default_rng(0)
    weights = {f"W{k}": rng.normal(0, 0.05, (size, size)).astype("float32") for k in range(count)}
    with ed.compile(ed.plan(graph, 1), "torch", device="cuda", gpu_memory="110MB") as executable:
        weights["SIZES"] = np.zeros(size, "float32")
        placed = executable.place(weights)
        for _ in range(5):
            given = {"X0": rng.normal(size=(64, size)).astype("float32")}
            found = executable({**placed, **given})[f"X{count}"]
            wanted = ed.evaluate(graph, {**weights, **given})[f"X{count}"]
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
