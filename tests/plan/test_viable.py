from __future__ import annotations

from math import comb, prod

import brute_bound
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.errors import PlanError
from eindecomp.planner.viable import viable


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
