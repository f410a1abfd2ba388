"""Box arithmetic: what is counted by formula is what counting device by device finds."""

from __future__ import annotations

import random
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.errors import UnsolvedError
from eindecomp.layout import overlaps as overlap_counts
from eindecomp.layout.cut import Cut, Span, interval, span_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import (
    aligned_overlaps,
    copied,
    fullest,
    most_entering,
    overlaps,
    totals,
)
from eindecomp.layout.view import Dim

MESHES = [(2, 2, 2, 2), (2, 2, 3), (3, 3, 3), (4, 2, 2), (6,), (2,) * 6]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Mesh, list[Cut], list[Cut]]:
    """Cuts of one tensor on a mesh: even and uneven, with axes in any order, windows, diagonals."""
    sizes = draw(st.sampled_from(MESHES))
    names = tuple(f"a{k}" for k in range(len(sizes)))
    mesh = Mesh(names, sizes, draw(st.sampled_from(["balanced", "ceil"])))
    shape = draw(st.lists(st.sampled_from([8, 16, 36, 64, 7, 1]), max_size=3))
    windows = draw(st.integers(0, 9)) == 0
    diagonals = draw(st.integers(0, 9)) == 0

    def cut() -> Cut:
        dims = st.integers(-1, len(shape) - 1)
        owners = [draw(dims) for _ in sizes]
        order = draw(st.permutations(range(len(sizes))))
        spans: list[Span] = []
        for d, size in enumerate(shape):
            axes = tuple(a for a in order if owners[a] == d or (diagonals and owners[a] >= 0))
            start = draw(st.integers(0, size - 1)) if windows else 0
            spans.append(Span(axes, size - start, 1, start, size))
        return tuple(spans)

    return mesh, [cut() for _ in range(3)], [cut() for _ in range(4)]


def boxes(mesh: Mesh, cut: Cut) -> list[list[range]]:
    """What each device has of each dimension."""
    ends = [interval(mesh, span) for span in cut]
    return [[range(low[d], high[d]) for low, high in ends] for d in range(mesh.devices)]


def volume(box: list[range]) -> int:
    return int(np.prod([len(side) for side in box], dtype=np.int64))


def meet(one: list[range], other: list[range]) -> list[range]:
    return [
        range(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True)
    ]


@given(layouts())
def test_formulas_agree_with_counting(given_):
    mesh, held, needed = given_
    ours, theirs = [boxes(mesh, c) for c in held], [boxes(mesh, c) for c in needed]
    assert totals(mesh, needed).tolist() == [sum(map(volume, own)) for own in theirs]
    assert fullest(mesh, needed).tolist() == [max(map(volume, own)) for own in theirs]
    shared = [
        [[volume(meet(a, b)) for a, b in zip(own, other, strict=True)] for other in theirs]
        for own in ours
    ]
    counted = [[sum(cell) for cell in row] for row in shared]
    assert overlaps(mesh, held, needed).tolist() == counted
    by_digits = aligned_overlaps(mesh, held, needed)
    assert by_digits is None or by_digits.tolist() == counted
    missing = [
        [
            max(0 if n == volume(box) else volume(box) for n, box in zip(cell, own, strict=True))
            for cell, own in zip(row, theirs, strict=True)
        ]
        for row in shared
    ]
    assert copied(mesh, held, needed).tolist() == missing


@given(st.permutations(range(6)), st.permutations(range(6)), st.integers(0, 6), st.integers(0, 6))
def test_even_cuts_are_compared_by_digits(one, other, first, second):
    mesh = Mesh.of_devices(64)

    def cut(order: list[int], count: int) -> Cut:
        rows, columns = tuple(order[:count]), tuple(order[count:])
        return (Span(rows, 64, 1, 0, 64), Span(columns, 128, 1, 0, 128))

    held, needed = [cut(one, first)], [cut(other, second)]
    found = aligned_overlaps(mesh, held, needed)
    assert found is not None
    assert found.tolist() == overlaps(mesh, held, needed).tolist()


@given(st.permutations(range(6)), st.permutations(range(6)), st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=30)
def test_what_enters_groups_is_compared_by_digits(one, other, first, second):
    mesh = Mesh.of_devices(64)
    rows, columns = one[:first], other[:second]
    held = [
        (Span(tuple(sorted(rows)), 64, 1, 0, 64), Span(tuple(sorted(one[first:])), 64, 1, 0, 64))
    ]
    needed = [(Span(tuple(columns), 64, 1, 0, 64), Span((), 64, 1, 0, 64))]
    sharers = np.array([[4]]), np.array([[2]])
    groups = (2, sharers[0]), (4, sharers[1])
    counted = most_entering(mesh, held, needed, *groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap_counts, "_COUNTED", 0)
        assert most_entering(mesh, held, needed, *groups) == pytest.approx(counted)


def test_a_million_devices_are_compared_at_once():
    mesh = Mesh.of_devices(1 << 20)
    cuts = [
        (Span(tuple(range(k)), 4096, 1, 0, 4096), Span(tuple(range(k, 20)), 4096, 1, 0, 4096))
        for k in range(8, 13)
    ]
    found = overlaps(mesh, cuts, cuts)
    assert np.diagonal(found).tolist() == [4096 * 4096] * 5
    assert totals(mesh, cuts).tolist() == [4096 * 4096] * 5


def test_uneven_cuts_on_a_million_devices_are_too_many_at_some_point():
    mesh = Mesh.of_devices(1 << 20)
    size = 1 << 21 | 1
    rows = [(Span(tuple(range(k, 20)), size, 1, 0, size),) for k in range(9)]
    axes = [tuple(a for a in range(20) if a != k) for k in range(20)]
    columns = [(Span(own, size, 1, 0, size),) for own in axes]
    assert overlaps(mesh, rows[:1], rows[:1]).item() == totals(mesh, rows[:1]).item()
    with pytest.raises(UnsolvedError, match="144 × 20 layouts on 1048576 devices are too many"):
        overlaps(mesh, rows * 16, columns)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_near_is_what_groups_of_devices_hold(seed):
    rng = random.Random(seed)
    mesh = Mesh(("a", "b", "c"), (2, 3, 2))
    shape = (12, 5)

    def any_cut():
        axes = rng.sample(range(3), rng.randint(0, 3))
        first = rng.randint(0, len(axes))
        own = (tuple(axes[:first]), tuple(axes[first:]))
        return tuple(span_of(Dim(None, 0, n), each) for n, each in zip(shape, own, strict=True))

    def elements(cut, device):
        ends = [(low[device], high[device]) for low, high in (interval(mesh, s) for s in cut)]
        return set(product(*(range(low, high) for low, high in ends)))

    held, needed = [any_cut() for _ in range(4)], [any_cut() for _ in range(3)]
    for axes in range(4):
        inner = prod(mesh.sizes[axes:])
        sharers = np.array([[rng.randint(1, 4) for _ in needed] for _ in held])
        found = most_entering(mesh, held, needed, (0, sharers), (axes, sharers))
        for (i, ours), (j, theirs) in product(enumerate(held), enumerate(needed)):
            groups = [range(d - d % inner, d - d % inner + inner) for d in range(mesh.devices)]
            near = [set().union(*(elements(ours, d) for d in group)) for group in groups]
            most = max(len(elements(theirs, d) - near[d]) for d in range(mesh.devices))
            assert found[i, j] == pytest.approx(most / sharers[i, j])
