"""Plan files: what is saved comes back, and nothing that is wrong is taken."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from test_ops import OPS, SIZES, parse

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.layout.mesh import prime_factors
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.make import plan
from eindecomp.planner.plan import Plan
from eindecomp.store import plan_file
from eindecomp.store.plan_file import from_json, load, save, to_json
from strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.ein"))
ASKED: dict[str, dict[str, Any]] = {
    "bytes": {},
    "bound": {"objective": "bound"},
    "linear": {"objective": "bound", "solver": "linear"},
    "sharded": {"inputs": "sharded"},
    "sqrt": {"strategy": "sqrt"},
    "even": {"pieces": "even", "inputs": "sharded"},
    "ceil": {"pieces": "ceil", "inputs": "sharded"},
    "time": {"objective": "time", "machine": "cpu-cluster"},
    "endless links": {"objective": "time", "machine": Machine(1e9, 1e9, inf, {"axis0": 1e-6})},
}


@pytest.mark.one_in(4)
@pytest.mark.long("multihead_attention-endless links", "multihead_attention-time")
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_saved_comes_back(path: Path, asked: str, tmp_path: Path) -> None:
    graph = ed.load(path)
    for devices in (1, 2) if asked == "endless links" else (1, 6, 8):
        made = plan(graph, devices, **ASKED[asked])
        made.save(tmp_path / "plan.json")
        found = Plan.load(tmp_path / "plan.json")
        assert found == made
        assert found.seconds == made.seconds
        assert to_json(found) == to_json(made)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@given(
    graphs(), st.sampled_from([2, 3, 4, 6]), st.sampled_from(sorted({*ASKED} - {"endless links"}))
)
def test_plans_of_any_graph_come_back(graph: ed.Graph, devices: int, asked: str) -> None:
    made = plan(graph, devices, **ASKED[asked])
    assert from_json(to_json(made)) == made


@pytest.mark.parametrize("op", OPS)
def test_plans_of_every_kind_come_back(op: str) -> None:
    for inputs in ("free", "sharded"):
        for devices in (2, 4):
            made = ed.plan(parse(op, SIZES["even"]), devices, inputs=inputs, rewrite=False)
            assert from_json(to_json(made)) == made


def test_what_was_asked_for_comes_back() -> None:
    graph = ed.parse("input X[i: 8, j: 4]\nY[i] <- sum X[i,j]\noutput Y")
    for asked in (
        {"pin": {"Y": {"i": ["gpu", "node"]}}, "mesh": {"node": 2, "gpu": 4}},
        {"pin": {"X": {"i": 2, "j": "gpu"}}, "mesh": {"node": 2, "gpu": 4}},
        {"pin": {"Y": {"i": ["node", "gpu"]}}, "mesh": {"node": 2, "gpu": 4}},
        {"pin": {"Y": {}, "X": {}}, "devices": 4},
        {"memory": "1MB", "devices": 4},
        {"strategy": ["j"], "devices": 4},
        {"objective": "time", "machine": "gpu-server"},
    ):
        made = plan(graph, **asked)
        assert from_json(to_json(made)) == made
    pinned = plan(graph, 4, pin={"Y": {"i": "axis1"}, "X": {"j": 4}})
    assert from_json(to_json(pinned)).pin == {"Y": {"i": ("axis1",)}, "X": {"j": 4}}
    assert plan(graph, 4).pin == {}


@given(st.integers(0, 2**32), st.sampled_from([2, 4, 6]), st.data())
def test_plans_of_whatever_is_pinned_come_back(
    seed: int, devices: int, data: st.DataObject
) -> None:
    graph = random_graph(seed, tree=False)
    layouts = plan(graph, devices, rewrite=False).decisions
    names = data.draw(st.lists(st.sampled_from(sorted(layouts)), unique=True, min_size=1))
    sizes = prime_factors(devices)
    pin = {
        name: {
            label: prod(sizes[axis] for axis in span.axes)
            for label, span in zip(graph[name].labels, layouts[name].home, strict=True)
        }
        for name in names
    }
    inputs = data.draw(st.sampled_from(["free", "sharded"]))
    made = plan(graph, devices, pin=pin, inputs=inputs, rewrite=False)
    assert made.pin == pin
    assert from_json(to_json(made)) == made


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    """A file with everything that one can hold."""
    graph = ed.parse("""
        input X[i: 8, j: 8], W[j, k: 8], V[i, m: 8]
        Y[i,k] <- sum X[i,j] * W[j,k]
        Z[k,m] <- sum Y[i,k] * V[i,m]
        U[k,i] <- Y[i,k] + Y[k,i]
        T[i,k] <- Y[i,k] * Y[k,i]
        S[i,k] <- Y[i,k] - Y[k,i]
        W2[j,k] <- W[j,k] + 1.0
        output Z, U, T, S, W2
    """)
    pin = {"X": {"j": ["node", "gpu"]}, "Z": {"k": 2, "m": "gpu"}}
    made = plan(
        graph, mesh={"node": 2, "gpu": 2}, inputs="sharded", pin=pin, tie={"W": "W2"}, rewrite=False
    )
    found = json.loads(to_json(made))
    assert set(found["given"]) == set("XWV")
    assert found["vertices"]["Y"]["further"]
    assert found["vertices"]["Y"]["scattered"]
    return found


def put(value: object, *place: str | int) -> Callable[[dict[str, Any]], None]:
    """Puts a value at a place of a file."""

    def change(data: Any) -> None:
        for key in place[:-1]:
            data = data[key]
        data[place[-1]] = value

    return change


def drop(*place: str | int) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for key in place[:-1]:
            data = data[key]
        del data[place[-1]]

    return change


Y = ("vertices", "Y")
X = ("given", "X")
SPAN = {"axes": [], "start": 0, "stop": 8, "scale": 1}
ORDERS = {"considered": 2, "complete": True, "most": {}}
WRONG: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (drop("format"), 'not a plan: it has no "format": "eindecomp plan"'),
    (put("onnx", "format"), "format: must be one of eindecomp plan, not 'onnx'"),
    (put(3, "version"), "version 3 of plan files is newer than this program"),
    (put(1, "version"), "version 1 of plan files is older than this program"),
    (put(True, "version"), "version: must be a whole number"),
    (drop("version"), "version: is missing"),
    (drop("vertices"), "vertices: is missing"),
    (put(0, "futher"), "there is no field 'futher'"),
    (put(7, "graph"), "graph: must be the text of a graph"),
    (put("Z[i] <- Q[i]", "graph"), "graph: graph:1:9: "),
    (put("input X[i: 3]", "graph"), "vertices: the graph has no computed vertex 'Y'"),
    (put({}, "mesh"), "mesh: must be a list"),
    (put([["gpu"]], "mesh"), "mesh.0: must be a name and a size"),
    (put([["gpu", 2], ["gpu", 2]], "mesh"), "mesh.1: axis 'gpu' is there twice"),
    (put([["gpu", 1]], "mesh"), "mesh.0.1: must be a whole number, 2 or more, not 1"),
    (put([["gpu", 2.5]], "mesh"), "mesh.0.1: must be a whole number"),
    (put([["gpu", 1e300]], "mesh"), "mesh.0.1: must be a whole number"),
    (put([["gpu", 1 << 40]], "mesh"), "mesh: a mesh has at most"),
    (put([["\x1b[2J", 2]], "mesh"), "mesh.0.0: must be a short text of printable characters"),
    (put([["g" * 2000, 2]], "mesh"), "mesh.0.0: must be a short text"),
    (put([[3, 2]], "mesh"), "mesh.0.0: must be a text, not 3"),
    (put([["node", 2]], "mesh"), "the mesh has no axis 'gpu'"),
    (put("speed", "objective"), "objective: must be one of bytes, bound, time, not 'speed'"),
    (put("time", "objective"), "machine: objective 'time' needs a machine"),
    (put([], "inputs"), "inputs: must be one of free, sharded, not []"),
    (put("odd", "pieces"), "pieces: must be one of balanced, even, ceil, not 'odd'"),
    (put("magic", "solver"), "solver: must be one of auto"),
    (put(None, "method"), "method: must be a text"),
    (put("a\nb", "method"), "method: must be a short text"),
    (put(-1, "seconds"), "seconds: must be a number, 0 or more, not -1"),
    (put("nonsense", "strategy"), "strategy: strategy 'nonsense' is not one of"),
    (put(["q"], "strategy"), "strategy: no tensor has any label"),
    (put([1], "strategy"), "strategy.0: must be a text"),
    (put(3, "strategy"), "strategy: must be a text"),
    (put("70GB", "memory"), "memory: must be a whole number"),
    (put({}, "machine"), "machine.flops: is missing"),
    (put({"speed": 1}, "machine"), "machine: there is no field 'speed'"),
    (
        put(
            {"flops": 0, "memory_bandwidth": 1, "bandwidth": 1, "latency": 0, "mesh": []},
            "machine",
        ),
        "machine: a machine's flops must be positive",
    ),
    (
        put(
            {"flops": 1, "memory_bandwidth": 1, "bandwidth": {"a": -1}, "latency": 0, "mesh": []},
            "machine",
        ),
        "machine.bandwidth.a: must be a number",
    ),
    (put(1, "cost"), "cost: is 1, but the decisions cost"),
    (put(None, "cost"), "cost: must be a number"),
    (put(True, "bound"), "bound: must be a number"),
    (put(10**9, "bound"), "bound: is 1000000000, above the cost"),
    (put([], "vertices"), "vertices: must be an object"),
    (put({}, "vertices", "Q"), "vertices: the graph has no computed vertex 'Q'"),
    (put({}, "vertices", "X"), "vertices: the graph has no computed vertex 'X'"),
    (drop("vertices", "Z"), "vertices.Z: is missing"),
    (put([], *Y), "vertices.Y: must be an object"),
    (put(1, *Y, "home"), "vertices.Y: there is no field 'home'"),
    (drop(*Y, "assignment"), "vertices.Y.assignment: is missing"),
    (put({"q": ["gpu"]}, *Y, "assignment"), "vertices.Y.assignment: there is no label to cut 'q'"),
    (put({"i": ["cpu"]}, *Y, "assignment"), "vertices.Y.assignment.i.0: the mesh has no axis"),
    (put({"i": [0]}, *Y, "assignment"), "vertices.Y.assignment.i.0: must be a text"),
    (put({"i": "gpu"}, *Y, "assignment"), "vertices.Y.assignment.i: must be a list"),
    (
        put({"i": ["gpu"], "k": ["node", "gpu"]}, *Y, "assignment"),
        "vertices.Y.assignment.k.1: axis 'gpu' is used twice",
    ),
    (put({}, *Y, "summed"), "vertices.Y: there is no field 'summed'"),
    (drop(*Y, "scattered"), "vertices.Y.scattered: is missing"),
    (put([], *Y, "scattered"), "vertices.Y.scattered: must be an object"),
    (put({"j": []}, *Y, "scattered"), "vertices.Y.scattered: Y[i,k] has no label 'j'"),
    (put({"i": "gpu"}, *Y, "scattered"), "vertices.Y.scattered.i: must be a list"),
    (put({"i": ["cpu"]}, *Y, "scattered"), "vertices.Y.scattered.i.0: the mesh has no axis 'cpu'"),
    (put("nowhere", *Y, "further"), "vertices.Y.further: must be a list"),
    (put([SPAN], *Y, "further"), "vertices.Y.further: Y[i,k] needs 2 spans, not 1"),
    (put([SPAN, {}], *Y, "further"), "vertices.Y.further.1.axes: is missing"),
    (put([SPAN, SPAN | {"stop": 9}], *Y, "further"), "further.1.stop: must be a whole number"),
    (put([SPAN, SPAN | {"start": -1}], *Y, "further"), "further.1.start: must be"),
    (put([SPAN, SPAN | {"scale": 0}], *Y, "further"), "further.1.scale: must be"),
    (put([SPAN, SPAN | {"scale": 3}], *Y, "further"), "in blocks of 3 cannot be cut like that"),
    (put([SPAN, SPAN | {"scale": 8, "axes": ["gpu"]}], *Y, "further"), "cannot be cut like that"),
    (
        put([SPAN, SPAN | {"axes": ["gpu", "gpu"]}], *Y, "further"),
        "vertices.Y.further.1.axes.1: axis 'gpu' is used twice",
    ),
    (put([SPAN | {"inner": []}, SPAN], *Y, "further"), "further.0: there is no field 'inner'"),
    (put({"home": [SPAN, SPAN]}, "given", "Y"), "given: the graph has no input 'Y'"),
    (put([SPAN, SPAN], "given", "X"), "given.X: must be an object"),
    (drop("given", "X", "home"), "given.X.home: is missing"),
    (drop("given", "X", "further"), "given.X.further: is missing"),
    (put([SPAN], *X, "further"), "given.X.further: X[i,j] needs 2 spans, not 1"),
    (put([SPAN, SPAN | {"stop": 4}], *X, "home"), "given.X.home: an input's layout must cover"),
    (put([SPAN, SPAN], *X, "home"), "given.X: X[i,j] does not lie where it is pinned, {'j'"),
    (drop("given", "X"), "given.X: is missing, but the input has a home"),
    (put([], "pin"), "pin: must be an object"),
    (put([], "pin", "X"), "pin.X: must be an object"),
    (put({}, "pin", "Q"), "pin: the graph has no tensor 'Q'"),
    (put(2, "pin", "X", "q"), "pin.X: X[i,j] has no label 'q'"),
    (put(0, "pin", "X", "i"), "pin.X.i: must be a whole number, 1 or more, not 0"),
    (put("gpu", "pin", "X", "i"), "pin.X.i: must be a whole number"),
    (put(16, "pin", "X", "i"), "pin: X[i,j] cannot be cut 16 ways along 'i' of 8"),
    (put(["cpu"], "pin", "X", "i"), "pin.X.i.0: the mesh has no axis 'cpu'"),
    (put([2], "pin", "X", "i"), "pin.X.i.0: must be a text"),
    (put(["gpu", "gpu"], "pin", "X", "i"), "pin.X.i.1: axis 'gpu' is used twice"),
    (put(3, "pin", "X", "i"), "pin: no axes of the mesh node=2 × gpu=2 cut X[i,j] as"),
    (put(4, "pin", "Z", "k"), "pin: no axes of the mesh"),
    (put({"k": 4}, "pin", "Z"), "vertices.Z: Z[k,m] does not lie where it is pinned, {'k': 4}"),
    (put({}, "pin", "Y"), "vertices.Y: Y[i,k] does not lie where it is pinned, {}"),
    (put("bound", "objective"), "pin, tie and memory: objective 'bound' has no layouts"),
    (put(1.2, "work"), "work: must be null where orders is, and pending false"),
    (put({"all": "int8"}, "reduce_dtype"), "my.json: reduce_dtype: partial results travel"),
    (put({"all": 2}, "reduce_dtype"), "reduce_dtype.all: must be a text"),
    (
        put(ORDERS, "orders"),
        "work: must be the limit within which the orders were chosen, not null",
    ),
    (put(ORDERS | {"most": {"Q": 1}}, "orders"), "orders.most: the graph has no vertex 'Q'"),
    (put([], "given"), "given: must be an object"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_every_wrong_field_is_named(
    saved: dict[str, Any], change: Callable[[dict[str, Any]], None], message: str
) -> None:
    data = deepcopy(saved)
    change(data)
    with pytest.raises(PlanError) as error:
        from_json(json.dumps(data).encode(), "my.json")
    assert str(error.value).startswith("my.json: ")
    assert message in str(error.value)


def test_fields_that_do_not_go_together_are_named() -> None:
    head = "input X[i: 8, j: 8], W[j, k: 8], V[k, l: 8]\nZ[i,l] <- "
    graph = ed.parse(f"{head}sum X[i,j] * W[j,k] * V[k,l]\noutput Z")
    ordered, bound = (json.loads(to_json(plan(graph, 4, to))) for to in ("bytes", "bound"))
    assert ordered["orders"]["considered"] > 1
    for data, field, value, message in (
        (ordered, "work", None, "work: must be the limit within which the orders were chosen"),
        (ordered, "orders", None, "work: must be null where orders is"),
        (bound, "memory", 9, "pin, tie and memory: objective 'bound' has no layouts"),
    ):
        with pytest.raises(PlanError, match=message):
            from_json(json.dumps(data | {field: value}).encode())


@pytest.mark.parametrize("objective", ["bytes", "time"])
@pytest.mark.parametrize("strategy", ["data", "zero", {"labels": ["f"], "state": "replicated"}])
def test_what_a_strategy_says_about_state_comes_back(strategy: Any, objective: str) -> None:
    """State that is replicated is computed by several devices, as other vertices may not be."""
    graph = ed.parse("""
        input X[b: 8, i: 8], W[i, f: 8]
        Y[b,f] <- sum X[b,i] * W[i,f]
        G[i,f] <- sum X[b,i] * exp(Y[b,f])
        W2[i,f] <- W[i,f] - G[i,f]
        output W2
    """)
    made = plan(graph, 4, objective, strategy=strategy, tie={"W": "W2"}, machine="cpu-cluster")
    assert from_json(to_json(made)) == made


def test_what_is_scattered_is_summed_and_only_once(saved: dict[str, Any]) -> None:
    [(label, [axis])] = saved["vertices"]["Y"]["scattered"].items()
    other = "gpu" if axis == "node" else "node"
    for wrong, message in (
        ({label: [axis, axis]}, f"{label}.1: axis '{axis}' is used twice"),
        ({"i": [axis], "k": [axis]}, f"k.0: axis '{axis}' is used twice"),
        ({label: [other]}, f"{label}.0: nothing is summed over this axis"),
    ):
        data = deepcopy(saved)
        data["vertices"]["Y"]["scattered"] = wrong
        with pytest.raises(PlanError, match=rf"vertices.Y.scattered.{message}"):
            from_json(json.dumps(data).encode())


def test_labels_are_not_cut_beyond_their_size() -> None:
    graph = ed.parse("input X[i: 3, j: 8]\nY[i,j] <- exp(X[i,j])\noutput Y")
    data = json.loads(to_json(plan(graph, 4)))
    data["vertices"]["Y"]["assignment"] = {"i": ["axis0", "axis1"]}
    with pytest.raises(PlanError, match="label 'i' of size 3 cannot be cut into 4"):
        from_json(json.dumps(data).encode())
    sums = ed.parse("input X[i: 1, j: 8]\nY[i] <- sum X[i,j]\noutput Y")
    data = json.loads(to_json(plan(sums, 2)))
    data["vertices"]["Y"]["scattered"] = {"i": ["axis0"]}
    with pytest.raises(PlanError, match=r"Y.scattered: Y\[i\] is too small to be cut like that"):
        from_json(json.dumps(data).encode())


def test_where_pieces_are_even_uneven_ones_are_refused() -> None:
    graph = ed.parse("input X[i: 6, j: 6]\nY[i,j] <- exp(X[i,j])\noutput Y")
    made = plan(graph, 4, pieces="even", inputs="sharded")
    data = json.loads(to_json(made))
    assert from_json(json.dumps(data).encode()) == made
    for place, value, message in (
        (("vertices", "Y", "assignment"), {"i": ["axis0", "axis1"]}, "into 4 equal pieces"),
        (
            ("given", "X", "home"),
            [SPAN | {"axes": ["axis0", "axis1"], "stop": 6}, SPAN | {"stop": 6}],
            "6 elements in blocks of 1 cannot be cut like that",
        ),
    ):
        wrong = deepcopy(data)
        put(value, *place)(wrong)
        with pytest.raises(PlanError, match=message):
            from_json(json.dumps(wrong).encode())


def test_a_result_that_is_pinned_to_fewer_pieces_comes_back() -> None:
    graph = ed.parse("input X[i: 8, j: 8]\nY[i,j] <- exp(X[i,j])\noutput Y")
    made = plan(graph, 4, pin={"Y": {"i": 2}})
    data = json.loads(to_json(made))
    assert from_json(json.dumps(data).encode()) == made


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"cost": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"null", "not a plan"),
        (b"[]", "not a plan"),
        (b'{"nodes": []}', "not a plan"),
        (b"input X[i: 3]", "not JSON"),
    ],
)
def test_foreign_files_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(data)
    with pytest.raises(PlanError, match=f"it: {message}"):
        load(tmp_path / "it")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-0.5", '"1"', "9" * 400])
@pytest.mark.parametrize("field", ["cost", "bound", "seconds", "memory"])
def test_numbers_are_finite_and_not_too_large(
    saved: dict[str, Any], field: str, number: str
) -> None:
    text = json.dumps(saved | {field: "HERE"}).replace('"HERE"', number)
    with pytest.raises(PlanError):
        from_json(text.encode())


@pytest.mark.long
def test_what_is_quoted_from_a_file_is_short(saved: dict[str, Any]) -> None:
    long = "x" * 10_000
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    count = len(places(deepcopy(saved)))
    for number in range(count):
        for value in (long, [long], {long: long}, deep):
            data = deepcopy(saved)
            held, key = places(data)[number]
            held[key] = value
            with pytest.raises(PlanError) as error:
                from_json(json.dumps(data).encode())
            assert len(str(error.value)) < 2000
        data = deepcopy(saved)
        held, key = places(data)[number]
        if isinstance(held, dict):
            held[long] = held.pop(key)
            with pytest.raises(PlanError) as error:
                from_json(json.dumps(data).encode())
            assert len(str(error.value)) < 2000


def test_too_large_files_are_not_read(
    saved: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(saved))
    small = replace(plan_file.PLAN_FILE, max_bytes=1 << 20)
    monkeypatch.setattr(plan_file, "PLAN_FILE", small)
    assert load(tmp_path / "plan.json").cost == saved["cost"]
    (tmp_path / "plan.json").write_text(json.dumps(saved) + " " * (1 << 20))
    with pytest.raises(PlanError, match="at most 1 MiB"):
        load(tmp_path / "plan.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every container of a file with each of its keys."""
    found: list[tuple[Any, Any]] = []
    stack = [data]
    while stack:
        here = stack.pop()
        keys = (
            here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        )
        found += [(here, key) for key in keys]
        stack += [here[key] for key in keys]
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_a_file_holds_it_is_a_plan_or_an_error(
    saved: dict[str, Any], data: st.DataObject
) -> None:
    changed = deepcopy(saved)
    for _ in range(data.draw(st.integers(1, 3))):
        here, key = data.draw(st.sampled_from(places(changed)))
        other, place = data.draw(st.sampled_from(places(changed)))
        here[key] = data.draw(st.just(deepcopy(other[place])) | JSON)
    try:
        found = from_json(json.dumps(changed).encode())
    except PlanError:
        return
    assert from_json(to_json(found)) == found
    assert found.bound <= found.cost == changed["cost"]
    assert found.explain()


@given(st.integers(0, 4000), st.binary(max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_broken_bytes_are_a_plan_or_an_error(saved: dict[str, Any], at: int, patch: bytes) -> None:
    data = json.dumps(saved).encode()
    try:
        found = from_json(data[:at] + patch + data[at + len(patch) :])
    except PlanError:
        return
    assert found.bound <= found.cost


def test_saving_fails_as_a_whole(tmp_path: Path) -> None:
    made = plan(ed.parse("input X[i: 8]\nY[i] <- exp(X[i])\noutput Y"), 2)
    with pytest.raises(OSError, match="nowhere"):
        save(made, tmp_path / "nowhere" / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_graphs_too_long_to_be_read_back_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(ed.parse("input X[i: 8]\nY[i] <- exp(X[i])\noutput Y"), 2)
    monkeypatch.setattr(plan_file, "MAX_TEXT", 10)
    with pytest.raises(PlanError, match="longer than 10 characters"):
        to_json(made)


WAITING = """
input A[i: 64, j: 64], B[j, k: 64], C[i, l: 64], D[l, k]
P[i,k] <- sum A[i,j] * B[j,k]
Q[i,k] <- sum C[i,l] * D[l,k]
Z[i,k] <- P[i,k] + Q[i,k]
R[i,k] <- relu(Z[i,k])
output R
"""


def waits_of(data: dict[str, Any]) -> dict[str, Any]:
    [own] = data["vertices"]["Z"]["waits"]
    return own


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(pending=False), "pending: is false, but results stay pending"),
        (lambda data: waits_of(data).update(operands=[1, 0]), "cannot be read in parts like that"),
        (lambda data: waits_of(data).update(operands=[0, 1, 1]), "cannot be read in parts"),
        (lambda data: waits_of(data).update(agg="max"), "cannot be read in parts like that"),
        (lambda data: waits_of(data).update(axes=[]), "waits.0.axes: names no axis"),
    ],
)
def test_what_waits_is_checked(change: Callable[[dict[str, Any]], None], message: str) -> None:
    data = json.loads(to_json(plan(ed.parse(WAITING), 2, inputs="sharded")))
    change(data)
    with pytest.raises(PlanError, match=message):
        from_json(json.dumps(data).encode())
