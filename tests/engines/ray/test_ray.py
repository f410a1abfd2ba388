"""Ray computes what the oracle does, bit by bit, and moves what plans cost."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from agreement import agree, arrays_for, precise
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph, random_step
from test_ops import OPS, SIZES, parse
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app
from eindecomp.engines.ray.cluster import call_off, is_called_off, ray_module
from eindecomp.engines.result import BytesMoved, RunStarted, TaskFinished, TaskStarted
from eindecomp.models.llama import Config, Llama
from strategies import graphs

few = settings(
    max_examples=settings.default.max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MESHES = [{"a": 4}, {"a": 3, "b": 2}, {"a": 2, "b": 2, "c": 2}]


def same(found, wanted):
    """Fail unless results, and what was moved for them, are the same."""
    for name, right in wanted.items():
        assert (found[name].shape, found[name].dtype) == (right.shape, right.dtype)
        assert found[name].tobytes() == right.tobytes()
    assert found.stats.bytes_moved == wanted.stats.bytes_moved
    assert found.stats.bytes_by_vertex == wanted.stats.bytes_by_vertex
    assert found.stats.bytes_placed == wanted.stats.bytes_placed
    assert found.stats.recovered == ()


def runs(engine, plan, arrays):
    found = ed.run(plan, arrays, engine)
    same(found, ed.run(plan, arrays, "apart"))
    assert found.stats.bytes_moved == plan.traffic.total
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("op", OPS)
def test_each_kind(engine, op):
    graph = parse(op, next(iter(SIZES.values())))
    runs(engine, ed.plan(graph, 3), arrays_for(graph))


@few
@given(graph=graphs(), devices=st.integers(1, 8), pieces=st.sampled_from(["even", "ceil"]))
def test_graphs_of_every_kind(engine, graph, devices, pieces):
    runs(engine, ed.plan(graph, devices, rewrite=False, pieces=pieces), arrays_for(graph))


@few
@given(
    seed=st.integers(0, 2**32),
    mesh=st.sampled_from(MESHES),
    inputs=st.sampled_from(["free", "sharded"]),
    pieces=st.sampled_from(["even", "ceil"]),
    seconds=st.sampled_from([0.0, 0.02]),
)
@example(seed=186, mesh={"a": 4}, inputs="sharded", pieces="ceil", seconds=0.0)
def test_random_graphs(engine, seed, mesh, inputs, pieces, seconds, monkeypatch):
    with precise():
        graph = random_graph(seed, tree=False, moves=True)
    arrays = arrays_for(graph, seed)
    try:
        ed.evaluate(graph, arrays)
    except ed.InputError:
        assume(False)  # an index is out of range
    monkeypatch.setattr(engine, "task_seconds", seconds)
    plan = ed.plan(graph, mesh=mesh, inputs=inputs, pieces=pieces, rewrite=False, time_limit=5)
    runs(engine, plan, arrays)


@few
@given(
    seed=st.integers(0, 10**6), inputs=st.sampled_from(["free", "sharded"]), donate=st.booleans()
)
def test_state_that_lives_on(engine, seed, inputs, donate):
    with precise():
        graph, tie = random_step(seed)
    plan = ed.plan(graph, 4, inputs=inputs, tie=tie)
    arrays = arrays_for(graph, seed)
    results = []
    for each in (engine, "apart"):
        with ed.compile(plan, each) as executable:
            state = executable.place({name: arrays[name] for name in tie})
            for _ in range(3):
                result = executable({**arrays, **state}, donate=state if donate else ())
                state = {name: result.tensor(new) for name, new in tie.items()}
        results.append(result)
    same(*results)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "bfloat16", "complex64"])
def test_each_type(engine, dtype):
    graph = ed.parse(
        f"input X[i: 6, j: 10] {dtype}, Y[j, k: 5] {dtype}\nZ[i,k] <- sum X[i,j] * Y[j,k]\n"
        "W[i] <- sum Z[i,k] - 1\noutput W, Z"
    )
    for strategy in (["i"], ["j"]):
        runs(engine, ed.plan(graph, 4, strategy=strategy), arrays_for(graph))


def test_empty_tensors_scalars_and_fills(engine):
    text = "input X[b: 4, a: 0], V[b], s\nY[b,a] <- X[b,a] * V[b]\nZ[a] <- max Y[b,a] * s\n"
    graph = ed.parse(text.replace(", s\n", "\nscalar s\n") + "output Z")
    for devices in (1, 4):
        assert ed.run(ed.plan(graph, devices), arrays_for(graph), engine)["Z"].shape == (0,)
    text = "M[s: 64, t: 64] <- fill t <= s\ninput X[s: 4]\nY[] <- sum X[s] + 1\noutput M, Y"
    graph = ed.parse(text)
    found = runs(engine, ed.plan(graph, 4), arrays_for(graph))
    np.testing.assert_array_equal(found["M"], np.tri(64, dtype=bool))


def test_events_tell_what_was_done(engine):
    graph = ed.parse("input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    plan = ed.plan(graph, 2, strategy=["j"])
    events = []
    found = ed.run(plan, arrays_for(graph), engine, on_event=events.append)
    assert events[0] == RunStarted(found.stats.tasks)
    kinds = {kind: [e for e in events if isinstance(e, kind)] for kind in map(type, events)}
    assert len(kinds[TaskStarted]) == len(kinds[TaskFinished]) == found.stats.tasks == 4
    assert sum(event.count for event in kinds[BytesMoved]) == plan.cost > 0
    assert all(0 <= event.start <= event.end for event in kinds[TaskFinished])


def test_a_failing_kernel_names_its_vertex_and_tile(engine):
    text = "input E[v: 4, a: 8], ids[b: 6] int64\nZ[b,a] <- E[ids[b], a]\noutput Z"
    plan = ed.plan(ed.parse(text), 2, strategy=["b"])
    inputs = {"E": np.ones((4, 8), np.float32), "ids": np.array([0, 1, 2, 3, 9, 0])}
    with pytest.raises(ed.RunError, match=r"Z\[b,a\], tile \[3:6, 0:8\] on device 1: index 9 is"):
        ed.run(plan, inputs, engine)
    inputs["ids"][4] = 0  # and the engine is as good as before
    runs(engine, plan, inputs)


def test_what_a_listener_raises_cancels_the_run(engine):
    def stop(event):
        if isinstance(event, TaskFinished):
            raise KeyboardInterrupt

    graph = ed.models.chain(64)
    plan = ed.plan(graph, 2)
    with pytest.raises(KeyboardInterrupt):
        ed.run(plan, arrays_for(graph), engine, on_event=stop)
    runs(engine, plan, arrays_for(graph))


def test_workers_hear_of_a_run_that_was_called_off(engine):
    runs(engine, ed.plan(ed.models.chain(8), 2), arrays_for(ed.models.chain(8)))  # starts Ray
    call_off("this run")
    ask = ray_module().remote(is_called_off)
    assert ray_module().get([ask.remote("this run"), ask.remote("another run")]) == [True, False]


def test_gradients_run(engine):
    graph = ed.parse("input X[b: 8, f: 6], W[f, o: 4]\nY[b,o] <- sum X[b,f] * W[f,o]\n"
                     "loss[] <- sum relu(Y[b,o])**2\noutput loss")  # fmt: skip
    graph = ed.grad(graph, "loss", wrt=["W"])
    arrays = arrays_for(graph)
    found = runs(engine, ed.plan(graph, 4), arrays)
    agree(found, ed.evaluate(graph, arrays), 1e-4)


SMALL = Config(
    vocabulary=40, width=16, layers=1, heads=4, kv_heads=2, head_size=4, hidden=24, positions=64
)


@pytest.mark.long
def test_llama_generates_the_same(engine):
    texts = [
        [t.token for t in Llama.random(SMALL, 4, "megatron", engine=each).generate([3, 1, 4], 4)]
        for each in (engine, "apart")
    ]
    assert texts[0] == texts[1]


def test_the_command_line(engine, tmp_path):
    """In this process, and so on the Ray that is here already."""
    assert engine.cluster.is_open
    path = tmp_path / "z.npy"
    words = ["run", "examples/matmul.ein", "-p", "2", "--random", "--check", "--engine", "ray"]
    done = CliRunner().invoke(app, [*words, "--option", f"outputs=Z={path}", "--json"])
    assert done.exit_code == 0, done.output
    assert orjson.loads(done.stdout)["recovered"] == []
    assert np.load(path).shape == (100, 50)
