"""The lifecycle: compile once, place once, run often, on every engine alike."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import RAY, TORCH, agree, arrays_for
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.tensor import Tensor

ENGINES = ["threads", "apart"]
STEP = """
input X[b: 8, f: 6], W[f, o: 4]
Y[b,o] <- sum X[b,f] * W[f,o]
new_W[f,o] <- W[f,o] * 0.5
output Y, new_W
"""
every_engine = pytest.mark.parametrize("engine", [*ENGINES, TORCH, RAY])


@pytest.fixture
def plan():
    return ed.plan(ed.parse(STEP), 4)


@every_engine
def test_placed_inputs_are_given_again_and_again(engine, plan):
    arrays = arrays_for(plan.graph)
    with ed.compile(plan, engine) as executable:
        weights = executable.place({"W": arrays["W"]})
        assert isinstance(weights["W"], Tensor)
        for seed in range(3):
            x = arrays_for(plan.graph, seed)["X"]
            found = executable({"X": x, **weights})
            agree(found, ed.evaluate(plan.graph, {"X": x, "W": arrays["W"]}), 1e-5)
            assert found.stats.bytes_placed == 0
        assert executable.schedule is None  # memory is not limited
    np.testing.assert_array_equal(np.asarray(weights["W"]), arrays["W"])


@every_engine
@pytest.mark.parametrize("donate", [(), ("W",)])
def test_results_are_given_back_without_gathering(engine, plan, donate, monkeypatch):
    arrays = arrays_for(plan.graph)
    gathered = []
    monkeypatch.setattr(
        Tensor, "numpy", lambda self: gathered.append(self) or self.gather(self.data)
    )
    with ed.compile(plan, engine) as executable:
        state = executable.place({"W": arrays["W"]})
        for _ in range(4):
            found = executable({"X": arrays["X"], **state}, donate=donate)
            state = {"W": found.tensor("new_W")}
        assert not gathered
        np.testing.assert_allclose(found["new_W"], arrays["W"] / 16, rtol=1e-6)
        assert len(gathered) == 1


@given(seed=st.integers(0, 2**32), devices=st.sampled_from([2, 3, 4, 6, 8]))
def test_moves_between_layouts_are_made_and_counted(seed, devices):
    """What one engine counts by arithmetic the other counts as it copies."""
    graph = random_graph(seed, tree=False)
    name = graph.inputs[0].name
    first = ed.plan(graph, devices, strategy="sqrt")
    second = ed.plan(graph, devices, inputs="sharded")
    arrays = arrays_for(graph, seed)
    counted = set()
    for engine in ENGINES:
        placed = ed.compile(first, engine).place({name: arrays[name]})
        found = ed.compile(second, engine)({**arrays, **placed})
        agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.bytes_moved == second.cost
        counted.add(found.stats.bytes_placed)
    assert len(counted) == 1


@every_engine
def test_a_layout_that_is_not_the_wanted_one_costs(engine):
    text = "input W[i: 8, j: 8]\nnew_W[i,j] <- W[i,j] + 1\noutput new_W"
    graph = ed.parse(text)
    rows, columns = (ed.plan(graph, 4, strategy=[label]) for label in "ij")
    w = np.zeros((8, 8), np.float32)
    made = ed.compile(rows, engine)({"W": w}).tensor("new_W")
    again = ed.compile(rows, engine)({"W": made})
    other = ed.compile(columns, engine)({"W": made})
    assert again.stats.bytes_placed == 0
    assert other.stats.bytes_placed == 4 * 64 * 3 // 4
    assert (again["new_W"] == 2).all()
    assert (other["new_W"] == 2).all()


@every_engine
def test_tensors_of_another_mesh_or_engine_are_taken(engine):
    graph = ed.parse("input W[i: 8]\nZ[i] <- W[i] + 1\noutput Z")
    w = np.arange(8, dtype=np.float32)
    for other in ENGINES:
        for devices in (2, 4):
            tensor = ed.compile(ed.plan(graph, 4), other).place({"W": w})["W"]
            found = ed.compile(ed.plan(graph, devices), engine)({"W": tensor})
            np.testing.assert_array_equal(found["Z"], w + 1)


@every_engine
def test_a_donated_tensor_is_gone(engine, plan):
    arrays = arrays_for(plan.graph)
    executable = ed.compile(plan, engine)
    placed = executable.place({"W": arrays["W"]})
    before = arrays["W"].copy()
    executable({"X": arrays["X"], **placed}, donate=["W"])
    np.testing.assert_array_equal(arrays["W"], before)  # the caller's array is not the tensor's
    with pytest.raises(ed.InputError, match="tensor 'W' was donated or released"):
        executable({"X": arrays["X"], **placed})
    with pytest.raises(ed.InputError, match="'X' cannot be donated: it is not a tensor"):
        executable(arrays, donate=["X"])


def test_memory_that_the_caller_has_seen_is_not_written_to_again():
    graph = ed.parse("input W[i: 1024, j: 512]\nnew_W[i,j] <- W[i,j] + 1\noutput new_W")
    executable = ed.compile(ed.plan(graph, 2))
    result = executable({"W": np.zeros((1024, 512), np.float32)})
    for step in range(1, 4):
        seen = result["new_W"]
        result = executable({"W": result.tensor("new_W")}, donate=["W"])
        assert (seen == step).all()
        assert (result["new_W"] == step + 1).all()


@every_engine
def test_a_closed_executable_refuses(engine, plan):
    executable = ed.compile(plan, engine)
    with executable:
        pass
    executable.close()
    for use in (lambda: executable({}), lambda: executable.place({})):
        with pytest.raises(ed.InputError, match="this executable was closed"):
            use()
    assert "closed" in repr(executable)


@every_engine
def test_a_listener_can_be_called(engine, plan):
    with (
        ed.compile(plan, engine) as executable,
        pytest.raises(ed.InputError, match="on_event is a function that takes an event, not 3"),
    ):
        executable({}, on_event=3)


@every_engine
def test_what_does_not_fit_is_named(engine, plan):
    executable = ed.compile(plan, engine)
    arrays = arrays_for(plan.graph)
    wrong = ed.compile(ed.plan(ed.parse("input A[i: 3]\nB[i] <- A[i]\noutput B"), 1), engine)
    tensor = wrong.place({"A": np.zeros(3, np.float32)})["A"]
    with pytest.raises(ed.InputError, match=r"input W\[f,o\] is of shape \(6, 4\)"):
        executable({"X": arrays["X"], "W": tensor})
    with pytest.raises(ed.InputError, match="'V' is not an input of the graph"):
        executable.place({"V": arrays["W"]})
    with pytest.raises(ed.InputError, match=r"input W\[f,o\] has shape \(6, 4\), got \(2,\)"):
        executable.place({"W": np.zeros(2, np.float32)})
    with pytest.raises(ed.InputError, match="there is no output 'new_V'; did you mean 'new_W'"):
        executable(arrays).tensor("new_V")


def test_engines_and_options_are_named():
    plan = ed.plan(ed.parse(STEP), 2)
    with pytest.raises(ed.InputError, match="there is no engine 'thread'; did you mean 'threads'"):
        ed.compile(plan, "thread")
    with pytest.raises(ed.InputError, match="has no option 'worker'; did you mean 'workers'"):
        ed.compile(plan, "threads", worker=2)
    with pytest.raises(ed.InputError, match="'apart' has no option 'workers'; it takes none"):
        ed.run(plan, {}, "apart", workers=2)
    with pytest.raises(ed.InputError, match="engine is a name or an engine"):
        ed.compile(plan, 3)
    with pytest.raises(ed.InputError, match="compile takes a Plan"):
        ed.compile(plan.graph)
    assert ed.run(plan, arrays_for(plan.graph), workers=1).stats.workers == 1


@every_engine
def test_an_output_that_is_an_input_is_a_tensor_too(engine):
    graph = ed.parse("input X[i: 4]\nY[i] <- X[i] + 1\noutput X, Y")
    executable = ed.compile(ed.plan(graph, 2), engine)
    x = np.arange(4, dtype=np.float32)
    result = executable({"X": x})
    np.testing.assert_array_equal(executable({"X": result.tensor("X")})["Y"], x + 1)
    np.testing.assert_array_equal(result["X"], x)
    assert result["X"] is not x


@every_engine
@pytest.mark.parametrize(
    "text",
    [
        "Y[i] <- X[i in 2:5]",  # a part of it is wanted
        "Y[i] <- X[i in 0:2]\nZ[j] <- X[j in 3:6]",
        "Y[] <- sum X[i] * 0 + 1",
        "F[k: 3] <- fill k",  # nobody reads it
    ],
)
def test_what_was_placed_is_gathered_whole(engine, text):
    names = [line.split("[")[0] for line in text.splitlines()]
    graph = ed.parse(f"input X[i: 7]\n{text}\noutput {', '.join(names)}")
    executable = ed.compile(ed.plan(graph, 2, rewrite=False), engine)
    x = np.arange(7, dtype=np.float32)
    placed = executable.place({"X": x})
    np.testing.assert_array_equal(placed["X"].numpy(), x)
    again = executable.place(placed)
    found = executable(again)
    agree(found, ed.evaluate(graph, {"X": x}), 1e-6)
    assert found.stats.bytes_placed == 0


@every_engine
def test_einsum_runs_on_any_engine(engine):
    x, y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(ed.einsum("ij,jk->ik", x, y, devices=2, engine=engine), x @ y)
