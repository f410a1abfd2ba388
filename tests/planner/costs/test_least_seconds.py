"""The fewest seconds by numbers of pieces: never more than any layouts with such pieces take."""

from __future__ import annotations

import random
from itertools import permutations, product
from math import prod

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.layout.cut import span_of
from eindecomp.layout.mesh import PIECES, Mesh, can_cut
from eindecomp.layout.view import Dim
from eindecomp.planner.costs.least_prices import LeastSeconds
from eindecomp.planner.costs.price import PriceInSeconds
from eindecomp.planner.space.pieces import PieceCount


def layouts(axes: int, dims: int):
    """Every way to cut dimensions by axes, nested in any order."""
    for given in product(range(dims + 1), repeat=axes):
        own = [[a for a in range(axes) if given[a] == d] for d in range(dims)]
        yield from product(*map(permutations, own))


def compared(sizes, bandwidth, latency, shape, pieces="balanced", *, fine=False, rounds="doubling"):
    """The least seconds by pieces, and the least over all layouts with those pieces."""
    names = tuple(f"a{i}" for i in range(len(sizes)))
    links = [dict(zip(names, of, strict=True)) for of in (bandwidth, latency)]
    machine = ed.Machine(1e12, 1e12, *links, rounds=rounds)
    price = PriceInSeconds(Mesh(names, sizes, pieces), machine)
    least = LeastSeconds(price, fine)
    level = [i for i, link in enumerate(least.links) for _ in range(link.axes)]
    cuts, counts = [], []
    for layout in layouts(len(sizes), len(shape)):
        counted = [
            tuple(prod(sizes[a] for a in own if level[a] == k) for k in range(len(least.links)))
            for own in layout
        ]
        if all(can_cut(pieces, s, prod(n)) for n, s in zip(counted, shape, strict=True)):
            cuts.append(
                tuple(span_of(Dim(None, 0, n), own) for n, own in zip(shape, layout, strict=True))
            )
            counts.append(
                tuple(
                    PieceCount(prod(n), size, 1, size, str(d), n)
                    for d, (n, size) in enumerate(zip(counted, shape, strict=True))
                )
            )
    index = {count: i for i, count in enumerate(dict.fromkeys(counts))}
    of = np.array([index[count] for count in counts])
    best = np.full((len(index), len(index)), np.inf)
    np.minimum.at(best, (of[:, None], of[None]), price.fetch(cuts, cuts, 4))
    return least.fetch(list(index), list(index), 4), best


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("seed", range(30))
def test_no_layouts_take_less(seed, pieces, fine):
    rng = random.Random(seed)
    axes = rng.randint(1, 3)
    sizes = tuple(rng.choice([2, 2, 2, 3, 4]) for _ in range(axes))
    sizes = (sizes[0],) * axes if rng.random() < 0.5 else sizes
    bandwidth = [rng.choice([1e6, 4e6]) for _ in sizes]
    latency = [rng.choice([0, 1e-5, 1e-4]) for _ in sizes]
    shape = [rng.choice([1, 2, 3, 4, 5, 6, 8, 8, 12, 16]) for _ in range(rng.randint(1, 2))]
    rounds = rng.choice(["doubling", "ring"])
    least, best = compared(sizes, bandwidth, latency, shape, pieces, fine=fine, rounds=rounds)
    assert (least <= best * (1 + 1e-12)).all()


@pytest.mark.parametrize("rounds", ["doubling", "ring"])
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("bandwidth", [(1e6, 1e6, 8e6, 8e6), (1e6, 8e6, 8e6, 8e6)])
def test_no_layouts_take_less_on_two_levels(bandwidth, fine, rounds):
    latency = [1e-5 if each == 1e6 else 1e-6 for each in bandwidth]
    least, best = compared((2, 2, 2, 2), bandwidth, latency, (16, 4), fine=fine, rounds=rounds)
    assert (least <= best * (1 + 1e-12)).all()


def test_a_gather_over_two_levels_is_known_by_its_pieces():
    """Each block comes to a server once, which pieces tell: nothing is left between the bounds."""
    machine = ed.Machine(1e12, 1e12, {"a": 1e6, "b": 8e6})
    price = PriceInSeconds(Mesh(("a", "b"), (2, 2)), machine)
    cuts = [(span_of(Dim(None, 0, 16), axes),) for axes in ((0, 1), ())]
    counts = [(PieceCount(prod(n), 16, 1, 16, "i", n),) for n in ((2, 2), (1, 1))]
    seconds = 4 * (4 / 1e6 + 8 / 8e6)
    assert price.fetch(cuts[:1], cuts[1:], 4)[0, 0] == pytest.approx(seconds)
    assert LeastSeconds(price).fetch(counts[:1], counts[1:], 4)[0, 0] == pytest.approx(seconds)


def test_groups_whose_pieces_other_axes_choose_hold_half_of_what_they_need():
    """Rows lie along one outer axis and are wanted along the other: half of the groups lack any."""
    price = PriceInSeconds(
        Mesh(("a", "b", "c"), (2, 2, 2)),
        ed.Machine(1e12, 1e12, {"a": 1e6, "b": 1e6, "c": 8e6}, 0.0),
    )
    held, needed = ((PieceCount(2, 8, 1, 8, "i", levels),) for levels in ((2, 1, 1), (1, 2, 1)))
    fine, coarse = LeastSeconds(price, fine=True), LeastSeconds(price)
    assert fine.fetch([held], [needed], 4)[0, 0] == pytest.approx(4 * 4 / 2 / 1e6)
    rows = (PieceCount(2, 8, 1, 8, "i", (2, 1)),)
    assert coarse.fetch([rows], [rows], 4)[0, 0] == 0


def test_axes_that_are_alike_leave_nothing_to_chance():
    least, best = compared((2, 2, 2), (4e9,) * 3, (3e-6,) * 3, (16, 8))
    assert np.allclose(least, best, rtol=1e-9)
