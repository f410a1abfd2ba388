"""Pins: tensors lie where they are pinned, and pins that cannot be met are refused by name."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph
from simulate import simulate

import eindecomp as ed
from eindecomp.layout.cut import pieces_by
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.space.pin import pinned_cuts

CHAIN = ed.parse(
    "input A[i: 64, j: 64], B[j, k: 64], C[k, l: 64]\n"
    "Z[i,k] <- sum A[i,j] * B[j,k]\nY[i,l] <- sum Z[i,k] * C[k,l]\nS[l] <- sum Y[i,l]\noutput S"
)
MAP = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- exp(X[i,j])\noutput Z")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("devices", [8, 16, 64])
@pytest.mark.parametrize(
    "pin", [{"Z": {"k": 8}}, {"Z": {}}, {"Z": {"i": 2, "k": 4}}, {"Y": {"l": 8}}, {"A": {"j": 2}}]
)
def test_a_pinned_tensor_lies_as_it_is_pinned(devices, pin):
    plan = ed.plan(CHAIN, devices, pin=pin, rewrite=False, time_limit=2)
    assert plan.cost >= ed.plan(CHAIN, devices, rewrite=False).cost
    (name, wanted), *_ = pin.items()
    cut = plan.given[name].home if name == "A" else plan.decisions[name].home
    pieces = {
        label: 2 ** len(span.axes) for label, span in zip(CHAIN[name].labels, cut, strict=True)
    }
    assert pieces == dict.fromkeys(pieces, 1) | wanted


@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([2, 3, 4, 6, 8]),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_any_result_can_be_pinned_in_any_number_of_pieces(seed, devices, inputs):
    rng = random.Random(seed)
    graph = random_graph(seed, tree=False)
    name = rng.choice([v.name for v in graph.vertices.values() if v not in graph.inputs])
    pieces, left = {}, devices
    for label, size in graph[name].sizes.items():
        pieces[label] = rng.choice([n for n in range(1, size + 1) if left % n == 0])
        left //= pieces[label]
    asked = {"pin": {name: pieces}, "inputs": inputs, "rewrite": False}
    found = ed.plan(graph, devices, pending=False, **asked)
    home = found.decisions[name].home
    cut = [pieces_by(found.mesh, span.axes) for span in home]
    assert cut == list(pieces.values())
    assert simulate(found).total == found.cost
    assert found.bound <= found.cost
    hurried = ed.plan(
        graph, devices, pin={name: pieces}, inputs=inputs, rewrite=False, time_limit=0
    )
    assert hurried.bound <= found.cost


def test_a_result_pinned_in_fewer_pieces_is_computed_several_times():
    """As few times as can be: all devices take part in a sum, and end with all of it."""
    found = ed.plan(MAP, 4, pin={"Z": {"i": 2}}, rewrite=False)
    assert (found.cost, found.parts["Z"]["i"]) == (0, 2)
    assert ed.plan(MAP, 4, pin={"Z": {}}, inputs="sharded", rewrite=False).cost > 0
    product = ed.parse("input X[i: 8, j: 8], W[j, k: 8]\nY[i,k] <- sum X[i,j] * W[j,k]\noutput Y")
    assert ed.plan(product, 4, pin={"Y": {}}).parts["Y"] == {"i": 1, "k": 1, "j": 4}


def test_a_merged_dimension_can_be_pinned():
    graph = ed.parse("input X[h: 8, d: 4]\nE[h,d] <- exp(X[h,d])\nY[(h, d)] <- E[h,d]\noutput Y")
    assert ed.plan(graph, 4, pin={"Y": {"h_d": 4}}).cost == 0


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ({"X": {"i": ["axis0", "axis0"]}}, "appears twice"),
        ({"X": {"i": None}}, "needs pieces or axes along 'i'"),
        ({"X": {"i": 16}}, "cannot be cut 16 ways"),
        ({"X": {"i": "gpu"}}, r"no mesh axis 'gpu' to cut X\[i,j\] along 'i'"),
        ({"X": {"i": 3}}, r"no axes of the mesh .* cut X\[i,j\] as {'i': 3}"),
        ({"X": {"i": 4, "j": 4}}, "no axes of the mesh"),
        ({"X": {"i": "axis0", "j": "axis0"}}, "no axes of the mesh"),
        ({"X": {"q": 2}}, "has no label 'q'"),
        ({"Q": {"i": 2}}, "pin: the graph has no tensor 'Q'"),
        ({"X": ["i"]}, "label: pieces or axis"),
        (3, "a pin is"),
    ],
)
def test_pins_that_cannot_be_are_named(pin, message):
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(MAP, 4, pin=pin)


def test_what_rewriting_removes_or_nobody_keeps_cannot_be_pinned():
    graph = ed.parse(
        "input X[s: 8, t: 8]\nM[s: 8, t: 8] <- fill s >= t\nA[s,t] <- exp(X[s,t])\n"
        "Z[s,t] <- A[s,t] * M[s,t]\noutput Z"
    )
    with pytest.raises(ed.PlanError, match=r"rewriting removes the tensor 'A'; use rewrite=False"):
        ed.plan(graph, 4, pin={"A": {"s": 4}})
    assert ed.plan(graph, 4, pin={"A": {"s": 4}}, rewrite=False).cost == 0
    with pytest.raises(ed.PlanError, match=r"pin: M\[s,t\] is a fill"):
        ed.plan(graph, 4, pin={"M": {"s": 4}}, rewrite=False)
    small = ed.parse("input X[i: 8, j: 2]\nZ[i,j] <- exp(X[i,j])\noutput Z")
    with pytest.raises(ed.PlanError, match="cannot be cut 4 ways, by a·b, along 'j' of 2"):
        ed.plan(small, mesh={"a": 2, "b": 2}, pin={"X": {"j": ["a", "b"]}})


def test_pins_are_looked_up_in_no_time_on_any_mesh():
    """Twenty axes have millions of groups, of which most make what is not asked for."""
    mesh = Mesh.of_devices(1 << 20)
    graph = ed.parse("input X[i: 4096, j: 4096, k: 4096]\nZ[i,j,k] <- exp(X[i,j,k])\noutput Z")
    for pin in ({"i": 32, "j": 32, "k": 3}, {"i": 32, "j": 32, "k": 2048}):
        with pytest.raises(ed.PlanError, match="no axes of the mesh"):
            pinned_cuts(graph, mesh, {"X": pin})
    with pytest.raises(ed.PlanError, match="too many ways"):
        pinned_cuts(graph, mesh, {"X": {"i": 32, "j": 32, "k": 32}})
    [cut] = pinned_cuts(graph, mesh, {"X": {"j": mesh.names[3:6]}})["X"]
    assert [span.axes for span in cut] == [(), (3, 4, 5), ()]


def test_a_pin_forbids_whatever_reading_costs():
    """With stored inputs an assignment has a cost beside that of a home which is ruled out."""
    graph = ed.parse("input X[i: 8, j: 8], W[j, k: 8]\nY[i,k] <- sum X[i,j] * W[j,k]\noutput Y")
    found = ed.plan(graph, 4, pin={"Y": {"k": 4}}, inputs="sharded", strategy=["k"])
    assert found.cost == 4 * 64 * 3
    with pytest.raises(ed.PlanError, match="agrees with the pins"):
        ed.plan(graph, 4, pin={"Y": {"k": 4}}, inputs="sharded", strategy=["i"])


def test_axes_nest_in_the_order_in_which_a_pin_names_them():
    mesh = Mesh.of_axes({"node": 2, "gpu": 2})
    cuts = {
        names: pinned_cuts(MAP, mesh, {"X": {"i": list(names)}})["X"]
        for names in (("node", "gpu"), ("gpu", "node"))
    }
    assert [[cut[0].axes for cut in own] for own in cuts.values()] == [[(0, 1)], [(1, 0)]]
    open_order = pinned_cuts(MAP, mesh, {"X": {"i": 4}})["X"]
    assert {cut[0].axes for cut in open_order} == {(0, 1), (1, 0)}
    pin = {name: {"i": ["gpu", "node"]} for name in ("X", "Z")}
    found = ed.plan(MAP, mesh={"node": 2, "gpu": 2}, pin=pin)
    assert found.cost == 0
    assert found.given["X"].home[0].axes == found.decisions["Z"].home[0].axes == (1, 0)


@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_pins_in_another_order_move_what_lies_elsewhere(inputs):
    """Of four tiles, two are where both orders want them."""
    pin = {"X": {"i": ["node", "gpu"]}, "Z": {"i": ["gpu", "node"]}}
    found = ed.plan(MAP, mesh={"node": 2, "gpu": 2}, pin=pin, inputs=inputs)
    assert found.cost == found.bound == 4 * 64 // 2
    assert simulate(found).total == found.cost


def test_a_sum_is_scattered_in_the_order_of_its_pin():
    graph = ed.parse("input X[i: 8, j: 8]\nY[i] <- sum X[i,j]\noutput Y")
    for axes in (["node", "gpu"], ["gpu", "node"]):
        pin = {"Y": {"i": axes}, "X": {"j": 4}}
        found = ed.plan(graph, mesh={"node": 2, "gpu": 2}, pin=pin)
        assert [found.mesh.names[a] for a in found.decisions["Y"].home[0].axes] == axes
        assert simulate(found).total == found.cost == 4 * 8 * 3
