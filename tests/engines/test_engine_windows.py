"""Every engine reads at computed places as the reference does, and moves what was planned."""

from __future__ import annotations

import pytest
from agreement import JAX, RAY, TORCH, agree, arrays_for, engine_of
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import needs_mpi, run_job

import eindecomp as ed
from window_cases import random_case

no_compiler = pytest.mark.parametrize("engine", ["threads", "apart", TORCH])  # quick to prepare
every_engine = pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])
SOME = settings(max_examples=settings.default.max_examples)


@no_compiler
@SOME
@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([2, 3, 4, 6, 8]),
    inputs=st.sampled_from(["free", "sharded"]),
    pieces=st.sampled_from(["balanced", "even", "ceil"]),
    rewrite=st.booleans(),
)
def test_random_windows(engine, seed, devices, inputs, pieces, rewrite):
    case = random_case(seed)
    graph, arrays = case.graph, case.arrays(seed)
    asked = {"inputs": inputs, "pieces": pieces, "rewrite": rewrite, "time_limit": 5}
    plan = ed.plan(graph, devices, **asked)
    found = ed.run(plan, arrays, engine_of(engine))
    agree(found, ed.evaluate(graph, arrays), 1e-9)
    assert found.stats.bytes_moved == plan.cost >= plan.bound


@no_compiler
@SOME
@given(seed=st.integers(0, 2**32), devices=st.sampled_from([2, 3, 4]))
def test_gradients_of_random_windows(engine, seed, devices):
    case = random_case(seed, most=2, largest=5)
    last = case.statements[-1]
    labels = ",".join(last.output)
    graph = ed.parse(f"{case.text}\nloss[] <- sum {last.name}[{labels}]**2\noutput loss")
    graph, arrays = ed.grad(graph, "loss", wrt=[*case.shapes]), case.arrays(seed)
    plan = ed.plan(graph, devices, time_limit=5)
    found = ed.run(plan, arrays, engine_of(engine))
    agree(found, ed.evaluate(graph, arrays), 1e-9)
    assert found.stats.bytes_moved == plan.cost


IMAGES = "input X[b: 4, c: 4, i: 10, j: 8], K[o: 4, c: 4, y: 3, x: 2]\n"
KINDS = {
    "convolution": f"""{IMAGES}
        Z[b,o,h: 10,w: 7] <- sum X[b, c, h + y - 1 else 0, w + x] * K[o,c,y,x]
    """,
    "strided": f"""{IMAGES}
        Z[b,o,h: 5,w: 3] <- sum X[b, c, 2*h + y - 1 else 0, 3*w + x] * K[o,c,y,x]
    """,
    "dilated": f"""{IMAGES}
        Z[b,o,h: 6,w: 6] <- sum X[b, c, h + 2*y, w + 2*x] * K[o,c,y,x]
    """,
    "grouped": """
        input X[b: 4, g: 2, c: 2, i: 10], K[g: 2, o: 3, c: 2, y: 3]
        Z[b,g,o,h: 10] <- sum X[b, g, c, h + y - 1 else 0] * K[g,o,c,y]
    """,
    "depthwise": """
        input X[b: 2, c: 6, i: 10, j: 8], K[c: 6, y: 3, x: 3]
        Z[b,c,h: 8,w: 6] <- sum X[b, c, h + y, w + x] * K[c,y,x]
    """,
    "transposed": """
        input X[b: 2, c: 4, w: 8], K[c: 4, o: 3, r: 4]
        Z[b,o,n: 16 = 2*w + r - 1] <- sum X[b,c,w] * K[c,o,r]
    """,
    "pools": """
        input X[b: 2, c: 4, i: 9]
        M[b,c,w: 5] <- max[r: 3] X[b, c, 2*w + r - 1 else identity]
        A[b,c,w: 4] <- sum[r: 2] X[b, c, 2*w + r] / 2
        Z[b,c] <- sum M[b,c,w] * A[b, c, w - 1 else clamp]
    """,
    "heat": """
        input U[i: 12, j: 12]
        V[i: 12, j] <- U[i,j] + (U[i+1 else 0, j] + U[i-1 else 0, j] + U[i, j] * -2) / 4
        Z[i: 12, j: 12] <- V[i,j] + (V[i, j+1 else clamp] + V[i, j-1 else clamp] - 2*V[i,j]) / 4
    """,
    "rolled and turned": """
        input X[i: 12, j: 6]
        E[i,j] <- exp(X[i,j])
        Z[i: 12, j: 6] <- E[i - 3 else wrap, 5 - j] * E[11 - i, j]
    """,
    "concatenated": """
        input X[i: 7, j: 6], Y[i: 5, j: 6]
        E[i,j] <- exp(X[i,j])
        C[i,j] <- concat[i](E[i,j], Y[i,j])
        Z[i,j] <- C[i,j] * 2 + C[i in 0:12, 0]
    """,
    "differences": """
        input X[i: 13, j: 4]
        Z[j] <- sum (X[i in 1:13, j] - X[i in 0:12, j])**2
    """,
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KINDS)
@every_engine
def test_kinds_of_windows_and_their_gradients(engine, kind):
    graph = ed.parse(f"{KINDS[kind]}\noutput Z")
    labels = ",".join(graph["Z"].labels)
    last = ed.parse(f"{KINDS[kind]}\nloss[] <- sum Z[{labels}]**2\noutput loss")
    both = ed.grad(last, "loss", wrt=[vertex.name for vertex in graph.inputs])
    few = engine == "jax"
    for own, devices, asked in [
        (graph, 4, {}), (graph, 6, {"inputs": "sharded", "pieces": "ceil"}),
        (both, 4, {"inputs": "sharded"}), (both, 3, {}),
    ][:: 3 if few else 1]:  # fmt: skip
        plan = ed.plan(own, devices, **asked)
        arrays = arrays_for(own)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(own, arrays), 1e-4)
        # XLA moves once what a vertex reads twice through equal boxes.
        moved = found.stats.bytes_moved
        assert moved == plan.cost or (few and moved < plan.cost)


@no_compiler
def test_devices_that_have_nothing_of_what_is_turned_round(engine):
    graph = ed.parse("""
        input X[i: 5, j: 4]
        Z[v: 2, w: 4] <- max[r: 3] (X[8 - 2*w else clamp, v - r + 3 else -1] + X[7 - 2*w else 2, v])
        output Z
    """)
    arrays = arrays_for(graph)
    for label in "vw":
        plan = ed.plan(graph, mesh={"a": 3}, strategy=[label], pieces="ceil", rewrite=False)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(graph, arrays), 1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("strategy", [["h"], ["w"], ["h", "w"], ["c"]])
@no_compiler
def test_convolutions_cut_along_any_label(engine, strategy):
    graph = ed.parse(f"{KINDS['convolution']}\noutput Z")
    for devices in (2, 4):
        plan = ed.plan(graph, devices, strategy=strategy, inputs="sharded")
        arrays = arrays_for(graph)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.bytes_moved == plan.cost


@pytest.mark.long
@pytest.mark.parametrize("engine", [RAY])
def test_tasks_of_ray(engine):
    for kind in ("strided", "heat", "concatenated", "differences"):
        graph = ed.parse(f"{KINDS[kind]}\noutput Z")
        plan, arrays = ed.plan(graph, 4, inputs="sharded"), arrays_for(graph)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.bytes_moved == plan.cost


@needs_mpi
def test_ranks_over_mpi():
    job = run_job("mpi", 3, "windows.py")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
def test_ranks_over_torch():
    pytest.importorskip("torch")
    job = run_job("torch", 2, "windows.py")
    assert (job.status, job.out) == (0, "all agree\n"), job.err
