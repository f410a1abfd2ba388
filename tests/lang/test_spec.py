"""Spec strings."""

import pytest

from eindecomp import ExpressionError
from eindecomp.lang.spec import parse_groups, parse_spec

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
    ("i...->i", (2,), "'...' is not supported"),
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
