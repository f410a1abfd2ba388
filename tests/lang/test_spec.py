"""Spec strings."""

import numpy as np
import pytest

import eindecomp as ed
from eindecomp import ExpressionError
from eindecomp.lang.einsum import parse_groups, parse_spec

GOOD = [
    ("ij,jk->ik", (2, 2), "ij,jk->ik"),
    ("ij,jk", (2, 2), "ij,jk->ik"),
    (" ij , jk -> ik ", (2, 2), "ij,jk->ik"),
    ("i,->i", (1, 0), "i,->i"),
    ("->", (0,), "->"),
    ("ba", (2,), "ba->ab"),
    ("i j, j k -> i k", (2, 2), "ij,jk->ik"),
]


@pytest.mark.parametrize(("spec", "ranks", "same"), GOOD)
def test_reading(spec: str, ranks: tuple[int, ...], same: str) -> None:
    left, _, right = same.partition("->")
    assert parse_spec(spec, ranks) == (tuple(tuple(p) for p in left.split(",")), tuple(right))


def test_words_where_only_they_fit() -> None:
    assert parse_spec("batch,batch->batch", (1, 1)) == ((("batch",), ("batch",)), ("batch",))
    assert parse_spec("batch seq -> seq", (2,)) == ((("batch", "seq"),), ("seq",))


BAD = [
    ("ij,jk->ik", (2,), "names 2 inputs, got 1"),
    ("ij->i", (3,), "'ij' has 2 labels, but input 0 has rank 3"),
    ("i...->i", (2,), "the output lacks the '...'"),
    ("..i->i", (2,), "'...' once or not at all"),
    ("...i...->...", (2,), "'...' once or not at all"),
    ("...ij->...", (1,), "'...ij' has 2 labels, but input 0 has rank 1"),
    ("i-j->i", (3,), "not of the form"),
    ("1j->j", (2,), "'1' is not a label"),
    ("i not -> i", (2,), "'not' is not a label"),
]


@pytest.mark.parametrize(("spec", "ranks", "message"), BAD)
def test_bad_specs_are_refused(spec: str, ranks: tuple[int, ...], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        parse_spec(spec, ranks)


@pytest.mark.parametrize("spec", ["a b", "(a b -> a b", "a ( -> a", "a ) -> a", "() a -> a"])
def test_bad_groups_are_refused(spec: str) -> None:
    with pytest.raises(ExpressionError):
        parse_groups(spec)


ELLIPSES = [
    ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]),
    ("...i,...i", [(2, 3, 4), (3, 4)]),
    ("i...->...", [(2, 3, 4)]),
    ("...ij,...jk->...ik", [(2, 1, 4, 5), (3, 5, 6)]),
    ("b ... i, i j -> b ... j", [(2, 3, 4), (4, 5)]),
    ("...,...->...", [(2, 3), (3,)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("...ij->...ji", [(2, 3)]),
    ("...", [(2, 3)]),
    ("...,->...", [(2, 3), ()]),
]


@pytest.mark.parametrize(("spec", "shapes"), ELLIPSES)
def test_an_ellipsis_is_numpys(spec: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    wanted = np.einsum(spec.replace(" ", ""), *arrays)
    np.testing.assert_allclose(ed.einsum(spec, *arrays, devices=2), wanted, rtol=1e-9)
    graph = ed.Graph()
    for k, shape in enumerate(shapes):
        graph.input(f"X{k}", {f"d{n}": size for n, size in enumerate(shape)}, "float64")
    graph.output(graph.einsum(spec, *list(graph), name="Z"))
    assert ed.parse(str(graph)) == graph
    given = {f"X{k}": x for k, x in enumerate(arrays)}
    np.testing.assert_allclose(ed.evaluate(graph, given)["Z"], wanted, rtol=1e-9)
