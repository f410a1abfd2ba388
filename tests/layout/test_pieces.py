"""Pieces: where they begin and end under each rule, and what plans make of them."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
import torch
from brute_ordered import ordered_oracle
from hypothesis import assume, given
from hypothesis import strategies as st
from random_graphs import LARGER, random_chain, random_graph, random_step
from simulate import simulate

import eindecomp as ed
from eindecomp.layout.cut import interval, largest_side, span_of
from eindecomp.layout.mesh import PIECES, Mesh, can_cut, piece_ends
from eindecomp.layout.overlaps import moved
from eindecomp.layout.tiling import box_on
from eindecomp.layout.view import Dim
from eindecomp.planner.costs.least_prices import LeastBytes
from eindecomp.planner.space.viable import most_pieces, viable

SEEDS = st.integers(0, 2**32)
DEVICES = st.sampled_from([2, 3, 4, 6, 8, 12])
RULES = st.sampled_from(PIECES)
UNEVEN = st.sampled_from(["even", "ceil"])
INPUTS = st.sampled_from(["free", "sharded"])
AXES = st.lists(st.sampled_from([2, 3, 4, 5, 6]), max_size=3)


def chunked(units: int, sizes: list[int]) -> list[list[int]]:
    """The units of each piece, by torch's own chunks of chunks."""
    pieces = [torch.arange(units)]
    for size in sizes:
        chunks = [list(piece.chunk(size)) for piece in pieces]
        nothing = torch.arange(0)
        pieces = [own[k] if k < len(own) else nothing for own in chunks for k in range(size)]
    return [piece.tolist() for piece in pieces]


@given(units=st.integers(1, 60), sizes=AXES)
def test_ceil_pieces_are_those_of_torch(units, sizes):
    ends = [piece_ends("ceil", units, sizes, k) for k in range(prod(sizes))]
    assert [list(range(*own)) for own in ends] == chunked(units, sizes)


@pytest.mark.parametrize(
    ("rule", "units", "sizes", "lengths"),
    [
        ("balanced", 5, (4,), [1, 1, 1, 2]),
        ("balanced", 7, (2, 3), [1, 1, 1, 1, 1, 2]),
        ("even", 6, (2, 3), [1] * 6),
        ("ceil", 5, (4,), [2, 2, 1, 0]),
        ("ceil", 5, (2, 2), [2, 1, 1, 1]),
        ("ceil", 7, (2, 3), [2, 2, 0, 1, 1, 1]),
        ("ceil", 7, (3, 2), [2, 1, 2, 1, 1, 0]),
    ],
)
def test_pieces_that_can_be_counted_by_hand(rule, units, sizes, lengths):
    ends = [piece_ends(rule, units, sizes, k) for k in range(prod(sizes))]
    assert [high - low for low, high in ends] == lengths


@given(rule=RULES, units=st.integers(1, 60), sizes=AXES)
def test_pieces_lie_side_by_side_and_inside_coarser_ones(rule, units, sizes):
    ends = [piece_ends(rule, units, sizes, k) for k in range(prod(sizes))]
    assert (ends[0][0], ends[-1][1]) == (0, units)
    assert all(one[1] == other[0] for one, other in pairwise(ends))
    for level in range(len(sizes)):
        inside = prod(sizes[level:])
        for k, (low, high) in enumerate(ends):
            first, last = piece_ends(rule, units, sizes[:level], k // inside)
            assert first <= low <= high <= last
    assert max(high - low for low, high in ends) == -(-units // prod(sizes))


@given(rule=RULES, sizes=AXES, data=st.data())
def test_every_device_has_the_piece_of_its_coordinates(rule, sizes, data):
    mesh = Mesh(tuple(f"a{k}" for k in range(len(sizes))), tuple(sizes), rule)
    axes = data.draw(st.permutations(range(len(sizes))))
    axes = tuple(axes[: data.draw(st.integers(0, len(axes)))])
    scale, units = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40))
    span = span_of(Dim("i", 0, scale * units, scale), axes)
    low, high = interval(mesh, span)
    assert low.dtype == high.dtype == np.int64
    for device, at in enumerate(product(*map(range, sizes))):
        index = 0
        for axis in axes:
            index = index * sizes[axis] + at[axis]
        first, last = piece_ends(rule, units, [sizes[a] for a in axes], index)
        assert (low[device], high[device]) == (scale * first, scale * last)
        assert box_on(mesh, (span,), device) == ((low[device], high[device]),)
    assert (high - low).max() == largest_side(mesh, span)


@given(sizes=st.dictionaries(st.sampled_from("ijk"), st.integers(0, 20), min_size=1), p=DEVICES)
def test_even_vectors_are_those_that_divide(sizes, p):
    """All that divide, of which only those with the most pieces count."""
    factors = Mesh.of_devices(p).sizes
    found = viable(sizes, p, even=True)
    every = product(*(range(1, p + 1) for _ in sizes))
    dividing = [
        row
        for row in every
        if p % prod(row) == 0
        and all(max(n, 1) % m == 0 for n, m in zip(sizes.values(), row, strict=True))
    ]
    most = max(map(prod, dividing))
    assert most_pieces(tuple(sizes.values()), factors, even=True) == most
    assert {tuple(own.values()) for own in found} == {row for row in dividing if prod(row) == most}


def odd_graph(seed, kind):
    """A small graph with sizes of all sorts, and what its inputs are tied to."""
    if kind == "step":
        return random_step(seed)
    if kind == "chain":
        return random_chain(seed, most=4), {}
    return random_graph(seed, tree=kind == "tree", sizes=(*LARGER[:8], 9, 11, 13)), {}


KINDS = st.sampled_from(["step", "chain", "tree", "any"])


@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS, pieces=UNEVEN, kind=KINDS)
def test_plans_are_optimal(seed, devices, inputs, pieces, kind):
    graph, tie = odd_graph(seed, kind)
    axes = Mesh.of_devices(devices).sizes
    oracle = ordered_oracle(graph, axes, inputs, tie=tie, pieces=pieces)
    assume(oracle.cells <= 1 << 18)
    asked = {"inputs": inputs, "tie": tie, "pieces": pieces, "rewrite": False}
    made = ed.plan(graph, devices, pending=False, **asked)
    assert (made.cost, made.pieces) == (oracle.least(), pieces)
    assert made.bound <= made.cost


@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS, pieces=UNEVEN)
def test_the_cost_is_what_devices_receive(seed, devices, inputs, pieces):
    graph = random_graph(seed, tree=False, moves=True)
    asked = {"inputs": inputs, "pieces": pieces, "rewrite": False, "time_limit": 5}
    made = ed.plan(graph, devices, pending=False, **asked)
    assert simulate(made).total == made.cost >= made.bound


@given(seed=SEEDS, pieces=UNEVEN, inputs=INPUTS)
def test_the_bound_on_seconds_holds(seed, pieces, inputs):
    graph = random_graph(seed, tree=False, most=3)
    machine = ed.Machine(1e9, 1e9, {"a": 1e8, "b": 1e9}, 1e-7)
    mesh = {"a": 2, "b": 3}
    asked = {"objective": "time", "machine": machine, "inputs": inputs, "pieces": pieces}
    made = ed.plan(graph, mesh=mesh, pending=False, **asked)
    assert made.bound <= made.cost
    simulate(made)


MESHES = st.sampled_from([(2, 2), (2, 3), (3, 2), (4,), (2, 2, 3)])


@given(sizes=MESHES, shape=st.tuples(*[st.integers(1, 13)] * 2), pieces=RULES, data=st.data())
def test_no_move_takes_less_than_the_relaxed_one(sizes, shape, pieces, data):
    """Whichever axes cut: what numbers of pieces alone tell is a lower bound."""
    from eindecomp.planner.space.pieces import PieceCount

    mesh = Mesh(tuple("abc"[: len(sizes)]), sizes, pieces)

    def cut():
        owners = [data.draw(st.integers(-1, 1)) for _ in sizes]
        order = data.draw(st.permutations(range(len(sizes))))
        axes = [tuple(a for a in order if owners[a] == d) for d in range(2)]
        parts = [prod(sizes[a] for a in own) for own in axes]
        assume(all(can_cut(pieces, n, m) for n, m in zip(shape, parts, strict=True)))
        spans = tuple(span_of(Dim(None, 0, n), own) for n, own in zip(shape, axes, strict=True))
        counts = tuple(
            PieceCount(m, n, 1, n, label, (m,))
            for m, n, label in zip(parts, shape, "ij", strict=True)
        )
        return spans, counts

    (held, held_counts), (needed, needed_counts) = cut(), cut()
    least = LeastBytes(mesh).fetch([held_counts], [needed_counts], 1)[0, 0]
    assert least <= moved(mesh, [held], [needed])[0, 0]


ODD = "input X[i: 10, j: 7]\nY[i,j] <- exp(X[i,j])\nZ[i] <- sum Y[i,j]\noutput Z"


def test_a_vertex_that_cannot_be_cut_evenly_has_fewer_pieces():
    graph = ed.parse(ODD)
    for devices, parts in ((4, {"i": 2, "j": 1}), (6, {"i": 2, "j": 1}), (7, {"i": 1, "j": 7})):
        made = ed.plan(graph, devices, pieces="even", rewrite=False)
        assert made.parts["Y"] == parts
    assert ed.plan(graph, 3, pieces="even", rewrite=False).parts["Y"] == {"i": 1, "j": 1}


def test_uneven_pins_are_refused_where_pieces_are_even():
    graph = ed.parse(ODD)
    ed.plan(graph, 4, pin={"Y": {"i": 2}}, pieces="even", rewrite=False)
    ed.plan(graph, 4, pin={"Y": {"i": 4}}, pieces="ceil", rewrite=False)
    with pytest.raises(ed.PlanError, match=r"Y\[i,j\] cannot be cut 4 ways evenly along 'i' of 10"):
        ed.plan(graph, 4, pin={"Y": {"i": 4}}, pieces="even", rewrite=False)
    with pytest.raises(ed.PlanError, match=r"cut 4 ways evenly, by axis0·axis1, along 'i' of 10"):
        ed.plan(graph, 4, pin={"X": {"i": ["axis0", "axis1"]}}, pieces="even")
    with pytest.raises(ed.PlanError, match=r"cannot be cut 8 ways along 'j' of 7"):
        ed.plan(graph, 8, pin={"Y": {"j": 8}}, pieces="even", rewrite=False)


def test_a_given_decomposition_is_priced_by_the_rule():
    graph = ed.parse("input X[i: 5, j: 4]\nY[i,j] <- exp(X[i,j])\nZ[i,j] <- Y[i,j] * 2\noutput Z")
    parts = {"Y": {"i": 4}, "Z": {"j": 4}}
    # Of Z's column of 5, a device has 1, 1, 1 and 2, or 2, 2, 1 and 0.
    for pieces in ("balanced", "ceil"):
        cost = ed.cost(graph, parts, 4, "bytes", mesh={"a": 4}, pieces=pieces)
        assert cost.total == 4 * (4 * 5 - 5)
    even = ed.cost(graph, {"Y": {"j": 4}, "Z": {"j": 4}}, 4, "bytes", pieces="even")
    assert even.total == 0
    with pytest.raises(ed.PlanError, match="'i' of size 5 cannot be cut into 4 equal pieces"):
        ed.cost(graph, parts, 4, "bytes", pieces="even")


def test_a_rule_that_does_not_exist_is_refused():
    with pytest.raises(ed.PlanError, match="pieces 'odd' is not one of balanced, even, ceil"):
        ed.plan(ed.parse(ODD), 4, pieces="odd")
