"""Join, aggregation and repartition against relations worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eindecomp import tra

IJ, JK = ("i", "j"), ("j", "k")
RNG = np.random.default_rng(0)
A, B = RNG.integers(-9, 9, (8, 8)), RNG.integers(-9, 9, (8, 8))


def product(i: int, j: int, k: int) -> tra.TensorRelation[Any]:
    """The joined tiles of an 8 × 8 matrix product."""
    return tra.join(np.matmul, [IJ, JK], tra.from_tensor(A, (i, j)), tra.from_tensor(B, (j, k)))


@pytest.mark.parametrize("d", [(4, 1, 4), (2, 1, 8), (2, 4, 2), (2, 2, 4)])
def test_the_papers_four_products(d: tuple[int, int, int]) -> None:
    """Its figures: 16 kernel calls each, and an aggregation where j is cut."""
    joined = product(*d)
    assert (len(joined.tiles), joined.parts, joined.shape) == (16, d, (8, 8, 8))
    combined: list[Any] = []
    result = tra.aggregate(
        lambda x, y: combined.append(x) or x + y, ("i", "j", "k"), ("i", "k"), joined
    )
    assert len(combined) == 16 - 16 // d[1]
    assert result.parts == (d[0], d[2])
    np.testing.assert_array_equal(tra.to_tensor(result), A @ B)


def test_matches_are_the_product_of_distinct_labels() -> None:
    """N([i, j], [j, k], [16, 2, 2, 4]) = 128 in the paper."""
    x, y = tra.from_tensor(np.ones((16, 2)), (16, 2)), tra.from_tensor(np.ones((2, 4)), (2, 4))
    assert len(tra.join(np.matmul, [IJ, JK], x, y).tiles) == 128


def test_a_join_matches_keys_of_any_number_of_relations() -> None:
    names = tra.from_tensor(np.arange(4), (2,))
    seen: list[tuple[int, ...]] = []
    tra.join(lambda *tiles: seen.append(tuple(int(t[0]) for t in tiles)),
             [("i",), ("k",), ("i",)], names, names, names)  # fmt: skip
    assert seen == [(0, 0, 0), (0, 2, 0), (2, 0, 2), (2, 2, 2)]
    assert tra.join(lambda: 7, []).tiles == {(): 7}


def test_a_repeated_label_joins_the_diagonal() -> None:
    found = tra.join(np.trace, [("i", "i")], tra.from_tensor(A, (3, 3)))
    assert (found.shape, found.parts) == ((8,), (3,))
    assert sum(found.tiles.values()) == np.trace(A)


def test_an_aggregation_permutes_keys_and_may_keep_all_or_none() -> None:
    relation = tra.from_tensor(A, (2, 4))
    turned = tra.aggregate(np.add, IJ, ("j", "i"), relation)
    assert (turned.parts, turned[3, 1].tolist()) == ((4, 2), relation[1, 3].tolist())
    assert tra.aggregate(np.add, IJ, IJ, relation).tiles == relation.tiles
    whole = tra.aggregate(np.add, IJ, (), relation)
    assert list(whole.tiles) == [()]
    np.testing.assert_array_equal(whole[()], A.reshape(2, 4, 4, 2).sum((0, 2)))


def test_an_aggregation_combines_in_the_order_of_keys() -> None:
    words = tra.TensorRelation((4,), (4,), {(k,): "abcd"[k] for k in (2, 0, 3, 1)})
    assert tra.aggregate(lambda x, y: x + y, ("i",), (), words).tiles == {(): "abcd"}


def test_the_papers_projection_and_concatenation() -> None:
    assert tra.project((2, 3, 4), ("k", "i"), ("i", "j", "k")) == (4, 2)
    assert tra.distinct(("i", "j", "b"), ("j", "b", "k")) == ("i", "j", "b", "k")


X, Y = tra.from_tensor(A, (2, 4)), tra.from_tensor(B, (2, 1))
SMALL = tra.from_tensor(B[:4], (4, 1))
ERRORS = [
    (
        lambda: tra.join(np.matmul, [IJ, JK], X, Y),
        r"keys do not match: the pieces of label 'j' are 4 in \[i j\] but 2 in \[j k\]",
    ),
    (
        lambda: tra.join(np.matmul, [IJ, JK], X, SMALL),
        r"keys do not match: label 'j' has size 8 in \[i j\] but 4 in \[j k\]",
    ),
    (
        lambda: tra.join(np.trace, [("i", "i")], X),
        r"the pieces of label 'i' are 2 in \[i i\] but 4 in \[i i\]",
    ),
    (lambda: tra.join(np.matmul, [IJ], X, Y), r"1 label lists for 2 relations"),
    (
        lambda: tra.join(np.matmul, [IJ, ("j",)], X, Y),
        r"\[j\] has 1 labels for a relation of shape \(8, 8\) in parts \(2, 1\)",
    ),
    (
        lambda: tra.aggregate(np.add, IJ, ("k",), X),
        r"no dimension of \[i j\] has the label 'k'; known: i, j",
    ),
    (lambda: tra.aggregate(np.add, ("i",), (), X), r"\[i\] has 1 labels for a relation of shape"),
    (lambda: tra.aggregate(np.add, ("i", "i"), (), X), r"a label appears twice in \[i i\]"),
    (lambda: tra.aggregate(np.add, IJ, ("i", "i"), X), r"a label appears twice in \[i i\]"),
    (lambda: tra.repartition(X, (2,)), r"parts \(2,\) has 1 entries, but shape \(8, 8\) has 2"),
    (lambda: tra.repartition(product(2, 2, 2), (1, 1, 1)), r"a join is aggregated first"),
]


@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_what_does_not_fit_is_refused(act: Any, message: str) -> None:
    with pytest.raises(tra.RelationError, match=message):
        act()
