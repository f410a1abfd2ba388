"""What cannot fit in this machine's memory is refused before it runs, on all engines."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.resources import needed_space
from eindecomp.tra.program.make import program_of

HUGE = """
input X[i: 4000000, j: 2], Y[j, k: 4000000]
Z[i,k] <- sum X[i,j] * Y[j,k]
S[] <- sum Z[i,k]
output S
"""


@pytest.mark.parametrize("engine", ["apart", "threads", "torch", "ray"])  # XLA never makes Z
def test_a_run_that_cannot_fit_is_refused(engine):
    if engine in ("torch", "ray"):
        pytest.importorskip(engine)
    plan = ed.plan(ed.parse(HUGE), 2, strategy=["i"], rewrite=False)
    x = np.ones((4_000_000, 2), "float32")
    told = r"running needs [\d.,]+ GiB for .* when it comes to [ZS].*; .* are available"
    with pytest.raises(ed.InputError, match=told):
        ed.run(plan, {"X": x, "Y": x.T}, engine)


MANY = """
input A[i: 4000000], B[j: 4000000]
M[i,j] <- A[i] * B[j]
N[i,j] <- exp(M[i,j])
r[i] <- max M[i,j] + N[j,i]
output r
"""


@pytest.mark.parametrize("engine", ["apart", "threads", "torch", "jax"])
def test_so_is_one_whose_intermediate_tensors_cannot(engine):
    if engine in ("torch", "jax"):
        pytest.importorskip(engine)
    plan = ed.plan(ed.parse(MANY), 2, strategy=["i"], rewrite=False)
    x = np.ones(4_000_000, "float32")
    with pytest.raises(ed.InputError, match=r"running needs [\d.,]+ GiB.* are available"):
        ed.run(plan, {"A": x, "B": x}, engine)


def test_so_are_results_of_a_paged_run_that_the_host_cannot_hold():
    pytest.importorskip("torch")
    graph = ed.parse(MANY.replace("output r", "output N"))
    plan = ed.plan(graph, 2, strategy=["i"], rewrite=False)
    x = np.ones(4_000_000, "float32")
    with pytest.raises(ed.EinDecompError, match=r"needs [\d.,]+ (TiB|GiB|bytes)"):
        ed.run(plan, {"A": x, "B": x}, "torch", gpu_memory="1GiB", device="cpu")


def test_what_devices_hold_is_what_they_are_counted_to_hold():
    text = "input X[i: 512, j: 512]\nY[i,j] <- X[i,j] * 2\nZ[i] <- sum Y[i,j]\noutput Z"
    program = program_of(ed.plan(ed.parse(text), 64, strategy=["i"], rewrite=False))
    needed = needed_space(program, range(64))
    assert (needed.bytes, needed.vertex) == (4 * (512 * 512 + 512), "Z")
