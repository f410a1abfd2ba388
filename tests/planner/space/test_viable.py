from __future__ import annotations

from math import comb, prod

import brute_bound
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.errors import PlanError
from eindecomp.planner.space.viable import (
    count_parts,
    most_pieces,
    parts_along,
    some_parts,
    viable,
    viable_parts,
)


def as_set(vectors: list[dict[str, int]]) -> set[tuple[int, ...]]:
    return {tuple(parts.values()) for parts in vectors}


@pytest.mark.parametrize("labels", range(1, 6))
@pytest.mark.parametrize("balls", range(7))
@pytest.mark.parametrize("prime", [2, 3, 7])
def test_equal_balls_into_buckets(prime, balls, labels):
    devices = prime**balls
    vectors = viable({f"l{k}": devices for k in range(labels)}, devices)
    assert len(vectors) == len(as_set(vectors)) == comb(balls + labels - 1, labels - 1)
    assert all(prod(parts.values()) == devices for parts in vectors)


def test_an_8_by_8_matrix_product_on_8_devices_has_10_vectors():
    """The paper prints 8 of them."""
    vectors = as_set(viable({"i": 8, "j": 8, "k": 8}, 8))
    assert len(vectors) == 10
    assert {(2, 4, 1), (1, 4, 2)} <= vectors


@pytest.mark.parametrize(
    ("sizes", "devices", "vectors"),
    [
        ((5, 7), 1, {(1, 1)}),
        ((1, 1), 1, {(1, 1)}),
        ((), 1, {()}),
        ((), 12, {()}),
        ((13, 13), 13, {(13, 1), (1, 13)}),
        ((5, 7), 4, {(4, 1), (2, 2), (1, 4)}),
        ((12, 12), 12, {(12, 1), (1, 12), (6, 2), (2, 6), (4, 3), (3, 4)}),
        ((3, 4), 12, {(3, 4)}),
        # Too small: of the factors 2, 2 and 3 those that make the most pieces.
        ((2, 3), 12, {(2, 3)}),
        ((3,), 4, {(2,)}),
        ((5,), 6, {(3,)}),
        ((3, 3), 8, {(2, 2)}),
        ((4, 3), 16, {(4, 2)}),
        ((2, 2), 12, {(2, 2)}),
        ((12,), 13, {(1,)}),
        ((1, 1, 1), 8, {(1, 1, 1)}),
    ],
)
def test_vectors(sizes, devices, vectors):
    found = viable({f"l{k}": size for k, size in enumerate(sizes)}, devices)
    assert as_set(found) == vectors
    assert len(found) == len(vectors)


@given(st.lists(st.integers(1, 20), max_size=4), st.integers(1, 96))
def test_all_vectors_are_found(sizes, devices):
    named = {f"l{k}": size for k, size in enumerate(sizes)}
    found = viable(named, devices)
    assert all(list(parts) == list(named) for parts in found)
    assert as_set(found) == as_set(brute_bound.viable(named, devices))
    assert len(found) == len(as_set(found))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=3), st.sampled_from([4, 6, 8, 12]))
def test_exact_divisions_come_first(sizes, devices):
    """Where costs tie, the first wins."""
    found = viable({f"l{k}": size for k, size in enumerate(sizes)}, devices)
    uneven = [sum(n % d > 0 for n, d in zip(sizes, v.values(), strict=True)) for v in found]
    assert uneven == sorted(uneven)


def test_many_devices_and_labels():
    vectors = viable(dict.fromkeys("abcdef", 10**6), 1024)
    assert len(vectors) == comb(10 + 5, 5)


@pytest.mark.parametrize("devices", [0, -2, 2.0, "8", True, None])
def test_devices_are_a_positive_integer(devices):
    with pytest.raises(PlanError, match="devices must be an integer, 1 or more"):
        viable({"i": 4}, devices)


SIZES = st.lists(st.integers(1, 12), max_size=5).map(tuple)
FACTORS = st.sampled_from([(), (2,), (2, 2, 3), (2, 2, 2), (4, 2, 3), (2, 3, 5), (4, 2, 2), (6,)])


@given(SIZES, FACTORS, st.data())
def test_what_is_counted_is_what_is_listed(sizes, factors, data):
    rows = viable_parts(sizes, factors)
    assert {int(row.prod()) for row in rows} == {most_pieces(sizes, factors)}
    if len(set(factors)) == 1 or factors == (2, 3, 5):  # elsewhere a vector has several ways
        assert count_parts(sizes, factors) == len(rows)
    some = some_parts(sizes, factors, 3)
    assert len(some) <= max(3, len(rows))
    assert {tuple(row) for row in some.tolist()} <= {tuple(row) for row in rows.tolist()}
    labels = tuple(data.draw(st.permutations(range(len(sizes)))))
    labels = labels[: data.draw(st.integers(0, len(sizes)))]
    wanted = {tuple(row) for row in rows[:, list(labels)].tolist()}
    assert {tuple(row) for row in parts_along(sizes, factors, labels).tolist()} == wanted


@given(st.integers(1, 9), st.integers(2, 4), SIZES, FACTORS)
def test_of_labels_that_are_alike_every_way_is_there_once(size, count, sizes, factors):
    sizes = ((size,) * count + sizes)[:6]
    group = tuple(range(count))
    rows = viable_parts(sizes, factors).tolist()
    wanted = {(*sorted(row[:count], reverse=True), *row[count:]) for row in rows}
    found = viable_parts(sizes, factors, (group,)).tolist()
    assert {tuple(row) for row in found} == wanted
    assert len(found) == len(wanted)


def test_what_cannot_be_listed_is_counted_and_refused():
    many = (2,) * 50, (2,) * 6
    assert count_parts(*many) == comb(50, 6)
    assert most_pieces(*many) == 64
    with pytest.raises(PlanError, match=r"50 in all\) .* 64 pieces in 15,890,700 ways, too many"):
        viable_parts(*many)
    assert len(viable_parts(*many, (tuple(range(50)),))) == 1
    assert some_parts(*many, 100).shape == (100, 50)


@pytest.mark.parametrize("devices", [np.int64(12), np.uint8(12)])
def test_numpys_whole_numbers_are_devices(devices):
    assert viable({"i": 12}, devices) == [{"i": 12}]
