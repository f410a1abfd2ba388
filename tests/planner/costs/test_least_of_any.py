"""The least that any schedule moves: against formulas, all sets of points, and all divisions."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, product
from math import prod, sqrt

import numpy as np
import pytest

from eindecomp.planner.costs.least_of_any import (
    Contraction,
    even_points,
    least_moved,
    least_touched,
    matrix_product,
)


def words_by_formula(m: float, n: float, k: float, p: float) -> float:
    """D of Al Daas, Ballard, Grigori, Kumar and Rouse, with its three cases."""
    m, n, k = sorted((m, n, k), reverse=True)
    if p <= m / n:
        return (m * n + m * k) / p + n * k
    if p <= m * n / k**2:
        return 2 * sqrt(m * n * k**2 / p) + m * n / p
    return 3 * (m * n * k / p) ** (2 / 3)


def test_products_of_matrices_have_the_three_cases_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        m, n, k = (int(2**exponent) for exponent in rng.uniform(0, 12, 3))
        p = int(2 ** rng.uniform(0, 10))
        found = least_touched(matrix_product(m * p, n, k, item=1), m * n * k)
        formula = words_by_formula(m * p, n, k, p)
        assert formula * (1 - 1e-10) < found < formula * (1 + 1e-12)


@pytest.mark.parametrize(("p", "grid"), {3: (3, 1, 1), 36: (12, 3, 1), 512: (32, 8, 2)}.items())
def test_the_grids_of_the_paper_move_the_least(p: int, grid: tuple[int, int, int]) -> None:
    """Its example: 9600 × 2400 × 600 in one, two and three dimensions."""
    sizes = dict(zip("ijk", (9600, 2400, 600), strict=True))
    pieces = dict(zip("ijk", grid, strict=True))
    lacks = {"ik": "j", "jk": "i", "ij": "k"}  # what a matrix is gathered or summed along
    moved = sum(sizes[own[0]] * sizes[own[1]] * (pieces[other] - 1) for own, other in lacks.items())
    points = {prod(sizes.values()) // p: p}
    assert least_moved(matrix_product(*sizes.values(), item=1), points) == moved


# All sets of points

READS = {
    "product": ({"i": 2, "j": 2, "k": 3}, ("ik", "kj", "ij"), (4, 4, 4)),
    "long product": ({"i": 8, "j": 2, "k": 1}, ("ik", "kj", "ij"), (2, 2, 4)),
    "cube": ({"i": 2, "j": 2, "k": 2}, ("ik", "kj", "ij"), (1, 1, 1)),
    "batches": ({"b": 2, "i": 2, "j": 2, "k": 2}, ("bik", "bkj", "bij"), (4, 8, 8)),
    "matrix times vector": ({"i": 4, "k": 4}, ("ik", "k", "i"), (4, 4, 4)),
    "outer product": ({"i": 5, "j": 3}, ("i", "j", "ij"), (4, 4, 4)),
    "dot product": ({"k": 12}, ("k", "k", ""), (4, 4, 4)),
    "MTTKRP": ({"i": 2, "j": 2, "k": 2, "r": 2}, ("ijk", "jr", "kr", "ir"), (4, 4, 4, 4)),
    "chain of three": ({"i": 2, "j": 2, "k": 2, "l": 2}, ("ij", "jk", "kl", "il"), (4, 4, 4, 4)),
    "matrix times its transpose": ({"s": 2, "t": 2, "e": 4}, ("se", "te", "st"), (4, 4, 4)),
}


def contraction(name: str) -> Contraction:
    sizes, reads, items = READS[name]
    number = {label: k for k, label in enumerate(sizes)}
    first = (0, 0, 2) if "transpose" in name or "dot" in name else tuple(range(len(reads)))
    tensors = tuple(frozenset(number[label] for label in own) for own in reads)
    return Contraction(tuple(sizes.values()), tensors, items, first)


@cache
def touched(name: str) -> np.ndarray:
    """The bytes that every set of points, given as bits, touches."""
    sizes, reads, items = READS[name]
    points = [
        dict(zip(sizes, at, strict=True)) for at in product(*(range(n) for n in sizes.values()))
    ]
    near: Counter[tuple[int, tuple[int, ...]]] = Counter()  # the points that touch an element
    for bit, point in enumerate(points):
        for own, labels in zip(contraction(name).first, reads, strict=True):
            element = (own, tuple(point[label] for label in labels))
            near[element] |= 1 << bit
    sets = np.arange(1 << len(points))
    return sum(
        (((sets & bits) != 0) * items[own] for (own, _), bits in near.items()),
        np.zeros(len(sets), dtype=np.int64),
    )


@pytest.mark.parametrize("name", READS)
def test_no_set_of_points_touches_less(name: str) -> None:
    every, own = touched(name), contraction(name)
    count = np.bitwise_count(np.arange(len(every)))
    for points in range(own.points + 1):
        assert every[count == points].min() >= least_touched(own, points) * (1 - 1e-12)
    assert every[-1] == pytest.approx(least_touched(own, own.points))
    assert every[-1] == own.stored


def best_division(name: str, works: tuple[int, ...]) -> int:
    """The least that is moved, of all ways to give each device so many points."""
    every = touched(name)

    @cache
    def least(left: int, place: int) -> int:
        bits = [1 << k for k in range(left.bit_length()) if left >> k & 1]
        if place == len(works) - 1:
            return int(every[left])
        return min(
            int(every[sum(own)]) + least(left - sum(own), place + 1)
            for own in combinations(bits, works[place])
        )

    return least(len(every) - 1, 0) - int(every[-1])


DIVISIONS = [
    ("cube", (4, 4)), ("cube", (2, 2, 2, 2)), ("cube", (3, 3, 2)), ("cube", (7, 1)),
    ("product", (6, 6)), ("product", (4, 4, 4)), ("product", (1, 2, 9)),
    ("long product", (8, 8)), ("batches", (8, 8)),
    ("matrix times vector", (8, 8)), ("outer product", (8, 7)), ("dot product", (4, 4, 4)),
    ("MTTKRP", (8, 8)), ("MTTKRP", (11, 5)), ("chain of three", (8, 8)),
    ("matrix times its transpose", (8, 8)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "works"), DIVISIONS)
def test_no_division_of_the_points_moves_less(name: str, works: tuple[int, ...]) -> None:
    assert 0 <= least_moved(contraction(name), Counter(works)) <= best_division(name, works)


@pytest.mark.parametrize(
    ("name", "works"),
    [("long product", (8, 8)), ("dot product", (4, 4, 4)), ("batches", (8, 8)), ("cube", (1,) * 8)],
)  # fmt: skip
def test_some_divisions_move_just_that(name: str, works: tuple[int, ...]) -> None:
    assert least_moved(contraction(name), Counter(works)) == best_division(name, works)


def test_halves_of_a_cube_move_more_than_the_bound() -> None:
    """No division of 2 × 2 × 2 points does better than the grid: the gap is that of the bound."""
    assert best_division("cube", (4, 4)) == 2 * 2  # one matrix, gathered or summed
    assert least_moved(contraction("cube"), {4: 2}) == 4
    assert 2 * least_touched(contraction("cube"), 4) - 12 == pytest.approx(3.119, abs=1e-3)


# Memory


@pytest.mark.parametrize("side", [1, 2, 8, 32, 64])
def test_memory_gives_the_bound_for_products(side: int) -> None:
    """On side² devices that have just three blocks, Cannon's algorithm rolls two of them."""
    n, p = 4096, side**2
    memory = 3 * n * n // p
    own, points = matrix_product(n, n, n, item=1), even_points(n**3, p)
    within = least_moved(own, points, memory)
    formula = p * (2 * n**3 / p / sqrt(memory) - 2 * memory) - n * n
    assert within == pytest.approx(max(formula, least_moved(own, points)), abs=1)
    assert within <= 2 * side * n * n  # each of the side steps moves both
    assert (within > least_moved(own, points)) == (side >= 32)


def test_memory_is_counted_in_bytes() -> None:
    words, doubles = (matrix_product(512, 512, 512, item) for item in (1, 8))
    points = even_points(512**3, 4096)
    memory = 3 * 512**2 // 4096
    assert least_moved(doubles, points, 8 * memory) == pytest.approx(
        8 * least_moved(words, points, memory), rel=1e-6
    )
    assert least_moved(words, points, memory) > least_moved(words, points)


def test_other_contractions_have_bounds_by_memory() -> None:
    """MTTKRP: the exponents are 1 - 1/3 for the tensor and 1/3 for each matrix."""
    sizes, tensors = (256, 256, 256, 64), tuple(map(frozenset, [(0, 1, 2), (1, 3), (2, 3), (0, 3)]))
    own = Contraction(sizes, tensors, (4,) * 4, (0, 1, 2, 3))
    points = even_points(own.points, 512)
    assert least_moved(own, points, 1 << 40) == least_moved(own, points)
    assert least_moved(own, points, 4 * 256) > least_moved(own, points)


def test_devices_without_points_touch_nothing() -> None:
    product = matrix_product(2, 2, 5)
    assert least_moved(product, {10: 2, 0: 2}) == least_moved(product, {10: 2})
