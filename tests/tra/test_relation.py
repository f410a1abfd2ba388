"""Tensor relations: cutting a tensor into tiles and putting it together again."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp import tra
from eindecomp.errors import EinDecompError

U = np.array([[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15, 16]])
DTYPES = ["bool", "int8", "uint64", "float16", "float32", "complex128", ml_dtypes.bfloat16]


@st.composite
def cut_tensors(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """A tensor of different elements, and two partitions of it."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 7, 11]), max_size=3)))
    tensor = np.arange(np.prod(shape)).reshape(shape).astype(draw(st.sampled_from(DTYPES)))
    one, other = (tuple(draw(st.integers(1, n)) for n in shape) for _ in range(2))
    return tensor, one, other


def equal(found: Any, expected: Any) -> bool:
    return found.dtype == expected.dtype and np.array_equal(found, expected)


@given(cut_tensors())
def test_a_tensor_survives_its_relation(case: tuple[Any, tuple[int, ...], tuple[int, ...]]) -> None:
    tensor, parts, other = case
    relation = tra.from_tensor(tensor, parts)
    assert (relation.shape, relation.parts) == (tensor.shape, parts)
    assert list(relation.tiles) == list(tra.keys(parts))
    assert equal(tra.to_tensor(relation), tensor)
    again = tra.repartition(relation, other)
    assert again.parts == other
    assert equal(tra.to_tensor(again), tensor)
    for k, (n, m) in enumerate(zip(tensor.shape, parts, strict=True)):
        sides = {tile.shape[k] for tile in relation.tiles.values()}
        assert sides <= {n // m, -(-n // m)}


@given(cut_tensors())
def test_equivalence_as_the_paper_defines_it(
    case: tuple[Any, tuple[int, ...], tuple[int, ...]],
) -> None:
    """R_j = 𝓡 at j / (b/d), j mod (b/d), where d divides b."""
    tensor, parts, _ = case
    if any(n % m for n, m in zip(tensor.shape, parts, strict=True)):
        return
    relation = tra.from_tensor(tensor, parts)
    side = [n // m for n, m in zip(tensor.shape, parts, strict=True)]
    for j in np.ndindex(tensor.shape):
        key = tuple(x // s for x, s in zip(j, side, strict=True))
        assert relation[key][tuple(x % s for x, s in zip(j, side, strict=True))] == tensor[j]


def test_the_papers_matrix() -> None:
    """What the paper prints for d = [4, 2] is the relation for [2, 4]."""
    columns = [[1, 3], [2, 4], [5, 7], [6, 8], [9, 11], [10, 12], [13, 15], [14, 16]]
    found = tra.from_tensor(U, (2, 4))
    assert [tile.ravel().tolist() for tile in found.tiles.values()] == columns
    assert {tile.shape for tile in found.tiles.values()} == {(2, 1)}
    found = tra.from_tensor(U, (4, 2))
    assert {tile.shape for tile in found.tiles.values()} == {(1, 2)}
    assert found[3, 1].tolist() == [[15, 16]]
    found = tra.from_tensor(U, (2, 2))
    assert {key: tile.tolist() for key, tile in found.tiles.items()} == {
        (0, 0): [[1, 2], [3, 4]],
        (0, 1): [[5, 6], [7, 8]],
        (1, 0): [[9, 10], [11, 12]],
        (1, 1): [[13, 14], [15, 16]],
    }


def test_a_relation_keeps_its_own_tiles() -> None:
    own = np.arange(4)
    relation = tra.from_tensor(own, (2,))
    own[:] = 0
    tra.to_tensor(relation)[:] = 0
    assert tra.to_tensor(relation).tolist() == [0, 1, 2, 3]


X = np.zeros(2)
ERRORS = [
    (lambda: tra.from_tensor(U, (2,)), r"parts \(2,\) has 1 entries, but shape \(4, 4\) has 2"),
    (lambda: tra.from_tensor(U, (2, 5)), r"dimension 1 of shape \(4, 4\) cannot .* into 5 pieces"),
    (lambda: tra.from_tensor(U, (0, 1)), r"dimension 0 of shape \(4, 4\) cannot .* into 0 pieces"),
    (lambda: tra.from_tensor(U, (2.0, 1)), r"a number of pieces must be a whole number, got 2\.0"),
    (
        lambda: tra.from_tensor(np.zeros((2, 0)), (1, 2)),
        "into 2 pieces: it has size 0",
    ),
    (lambda: tra.from_tensor(["a"], (1,)), r"dtype str.* is not supported"),
    (lambda: tra.from_tensor(U, (2, 2))[2, 0], r"in parts \(2, 2\) has no key \(2, 0\)"),
    (lambda: tra.TensorRelation((4,), (2,), {(0,): X}), r"needs a tile for key \(1,\)"),
    (lambda: tra.TensorRelation((4,), (1,), {(0,): X, (1,): X}), r"has no key \(1,\)"),
    (lambda: tra.TensorRelation((4,), (1, 1), {(0, 0): X}), r"parts \(1, 1\) has 2 entries"),
    (
        lambda: tra.to_tensor(tra.TensorRelation((3,), (1,), {(0,): X})),
        r"no tensor of shape \(3,\) has .* key \(0,\) .*: its shape is \(2,\), not \(3,\)",
    ),
    (
        lambda: tra.to_tensor(tra.TensorRelation((2,), (2,), {(0,): X[:1], (1,): U[0, :1]})),
        r"several types: float64, int64",
    ),
]


@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_what_does_not_fit_is_refused(act: Any, message: str) -> None:
    with pytest.raises(EinDecompError, match=message):
        act()
