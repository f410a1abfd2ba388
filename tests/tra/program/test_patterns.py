"""The pattern of a move: what a collective would do is what the devices exchange."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import span_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling, group_along, replicated_axes
from eindecomp.layout.view import Dim
from eindecomp.tra.program.device_row import received, sent
from eindecomp.tra.program.steps import (
    Exchanged,
    Gathered,
    LocalSlice,
    Permuted,
    PointToPoint,
    pattern_of,
)

MESH = Mesh(("a", "b", "c"), (2, 2, 3))


def tiling(*axes, sizes=(12, 12), split=0):
    """The tiling of a matrix whose dimensions these axes cut."""
    spans = zip(sizes, axes, strict=True)
    return Tiling(tuple(span_of(Dim(None, 0, n), tuple(own)) for n, own in spans), split)


A, B, C = 0, 1, 2
CASES = [
    (((), ()), ((A,), (B,)), LocalSlice()),
    (((A,), ()), ((A, B), (C,)), LocalSlice()),
    (((A, B), ()), ((A,), ()), Gathered((B,), (0,))),
    (((A,), (B,)), ((), ()), Gathered((A, B), (0, 1))),
    (((A,), ()), ((), (C,)), Gathered((A,), (0,))),
    (((A,), ()), ((), (A,)), Exchanged((A,), 0, 1)),
    (((A, C), ()), ((), (A, C)), Exchanged((A, C), 0, 1)),
    (((C, A), ()), ((), (C, A)), Exchanged((C, A), 0, 1)),
    (((C, A), ()), ((), (A, C)), PointToPoint()),  # nested in another order
    (((C, A), ()), ((C,), ()), Gathered((A,), (0,))),
    (((C, A), ()), ((C, A), (B,)), LocalSlice()),
    (((A, B), ()), ((B, A), ()), Permuted()),
    (((A,), ()), ((B,), ()), PointToPoint()),  # one tile goes to several
    (((A,), (B,)), ((B,), (A,)), Permuted()),
    (((A,), ()), ((C,), ()), PointToPoint()),
]


def test_chunks_of_chunks_are_other_tiles_in_another_order_of_axes():
    held, wanted = tiling((A, C), (), sizes=(7, 12)), tiling((C, A), (), sizes=(7, 12))
    for pieces, pattern in (("balanced", Permuted()), ("ceil", PointToPoint())):
        assert pattern_of(replace(MESH, pieces=pieces), held, wanted) == pattern
    held, wanted = tiling((A, B), (), sizes=(7, 12)), tiling((B, A), (), sizes=(7, 12))
    assert pattern_of(replace(MESH, pieces="ceil"), held, wanted) == Permuted()


@pytest.mark.parametrize(("held", "wanted", "pattern"), CASES)
def test_patterns(held, wanted, pattern):
    found = pattern_of(MESH, tiling(*held), tiling(*wanted))
    assert found == pattern


def test_shares_are_gathered():
    cut = tiling((A,), ())
    split = replicated_axes(MESH, cut.cut)
    shared = Tiling(cut.cut, split)
    assert pattern_of(MESH, shared, cut) == Gathered((B, C), ())


AXES = st.lists(st.sampled_from([None, 0, 1]), min_size=3, max_size=3)


def _drawn(places, sizes):
    own = [[axis for axis, place in enumerate(places) if place == d] for d in (0, 1)]
    return tiling(*own, sizes=sizes)


@given(held=AXES, wanted=AXES, sizes=st.tuples(st.integers(12, 17), st.integers(12, 17)))
def test_collectives_stay_within_their_groups(held, wanted, sizes):
    """Devices exchange only with those that the collective joins, each once, both ends agreeing."""
    before, after = _drawn(held, sizes), _drawn(wanted, sizes)
    pattern = pattern_of(MESH, before, after)
    pairs = set()
    for device in range(MESH.devices):
        transfers = received(MESH, before, after, device)
        pairs |= {(t.peer, device, t.box) for t in transfers}
        peers = [t.peer for t in transfers]
        match pattern:
            case LocalSlice():
                assert not transfers
            case Gathered(axes) | Exchanged(axes):
                bits = sum(1 << axis for axis in axes)
                assert set(peers) <= set(group_along(MESH, bits, device))
            case Permuted():
                assert len(peers) <= 1
                assert len(sent(MESH, before, after, device)) <= 1
            case PointToPoint():
                pass
    assert pairs == {
        (device, t.peer, t.box)
        for device in range(MESH.devices)
        for t in sent(MESH, before, after, device)
    }


def test_every_element_arrives_once():
    for held, wanted in product(product([None, 0, 1], repeat=3), repeat=2):
        before, after = _drawn(held, (13, 12)), _drawn(wanted, (13, 12))
        for device in range(MESH.devices):
            own, box = before.box(MESH, device), after.box(MESH, device)
            arrives = sum(volume(t.box) for t in received(MESH, before, after, device))
            sides = zip(own, box, strict=True)
            kept = [max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in sides]
            assert arrives == volume(box) - kept[0] * kept[1]
