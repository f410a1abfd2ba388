"""The three operations on tensor relations: join ⋈, aggregation Σ and repartition Π."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

from eindecomp.errors import RelationError, suggest
from eindecomp.tra.relation import TensorRelation, from_tensor, keys, to_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from eindecomp.lang.einsum import Labels
    from eindecomp.tra.relation import Key

    Array = np.ndarray[Any, Any]

T = TypeVar("T")


def join(
    kernel: Callable[..., T], labels: Sequence[Labels], *relations: TensorRelation[Any]
) -> TensorRelation[T]:
    """⋈ with K, ℓ_X, ℓ_Y, …: the kernel of tiles whose keys match, one call for each match.

    `labels` are those of each relation. Keys match if they are equal wherever their labels are;
    the result's keys are over ℓ_X ⊙ ℓ_Y ⊙ …. A label twice in one relation takes its diagonal.

    >>> X, Y = from_tensor([1, 2, 3, 4], (2,)), from_tensor([5, 6, 7], (3,))
    >>> outer = join(lambda x, y: x * y, [("i",), ("k",)], X, Y)
    >>> outer.parts, outer[1, 2]
    ((2, 3), array([21, 28]))
    """
    if len(labels) != len(relations):
        raise RelationError(f"a join got {len(labels)} label lists for {len(relations)} relations")
    for own, relation in zip(labels, relations, strict=True):
        _check_rank(own, relation)
    sizes = _by_label(labels, [x.shape for x in relations], "label {!r} has size {}")
    parts = _by_label(labels, [x.parts for x in relations], "the pieces of label {!r} are {}")
    space, cut = tuple(parts), tuple(parts.values())
    tiles: dict[Key, T] = {}
    for key in keys(cut):
        # A key of the joined space has one match: in each relation the tile at its own labels.
        matching = [x[project(key, own, space)] for x, own in zip(relations, labels, strict=True)]
        tiles[key] = kernel(*matching)
    return TensorRelation(tuple(sizes.values()), cut, tiles)


def aggregate(
    combine: Callable[[T, T], T], labels: Labels, keep: Labels, relation: TensorRelation[T]
) -> TensorRelation[T]:
    """Σ with ⊕, ℓ_X, ℓ_agg: the ⊕ of the tiles of every group.

    `labels` are the relation's, `keep` those that are not aggregated, in the order of the new keys.
    Tiles are in one group if their keys are equal at `keep`; they are combined in the order of
    their keys, so that equal relations give equal results to the last bit.

    >>> X = from_tensor([[1, 2, 3, 4], [5, 6, 7, 8]], (2, 2))
    >>> aggregate(lambda x, y: x + y, ("i", "j"), ("j",), X).tiles
    {(0,): array([[6, 8]]), (1,): array([[10, 12]])}
    """
    _check_rank(labels, relation)
    _check_kept(labels, keep)
    groups: dict[Key, list[T]] = {}
    for key in keys(relation.parts):
        groups.setdefault(project(key, keep, labels), []).append(relation[key])
    return TensorRelation(
        project(relation.shape, keep, labels),
        project(relation.parts, keep, labels),
        {key: reduce(combine, tiles) for key, tiles in groups.items()},
    )


def repartition(relation: TensorRelation[Array], parts: Sequence[int]) -> TensorRelation[Array]:
    """Π_d: the relation in other parts that stores the same tensor.

    >>> repartition(from_tensor([1, 2, 3, 4], (2,)), (1,)).tiles
    {(0,): array([1, 2, 3, 4])}
    """
    return from_tensor(to_tensor(relation), parts)


def project(vector: tuple[int, ...], wanted: Labels, labels: Labels) -> tuple[int, ...]:
    """b[ℓ₁; ℓ₂]: the entries that a vector over the labels ℓ₂ has for the labels ℓ₁.

    >>> project((2, 3, 4), ("k", "i"), ("i", "j", "k"))
    (4, 2)
    """
    return tuple(vector[labels.index(label)] for label in wanted)


def distinct(*labels: Labels) -> Labels:
    """ℓ_X ⊙ ℓ_Y ⊙ …: the lists one after another, every label once.

    >>> distinct(("i", "j"), ("j", "k"))
    ('i', 'j', 'k')
    """
    return tuple(dict.fromkeys(label for own in labels for label in own))


def _by_label(
    labels: Sequence[Labels], vectors: Sequence[tuple[int, ...]], what: str
) -> dict[str, int]:
    """The entry of each label of ℓ_X ⊙ ℓ_Y ⊙ …, on which all that have the label must agree."""
    found: dict[str, tuple[int, Labels]] = {}
    for own, vector in zip(labels, vectors, strict=True):
        for label, entry in zip(own, vector, strict=True):
            before, place = found.setdefault(label, (entry, own))
            if before != entry:
                raise RelationError(
                    f"keys do not match: {what.format(label, before)} in {_show(place)} but "
                    f"{entry} in {_show(own)}"
                )
    return {label: entry for label, (entry, _) in found.items()}


def _check_rank(labels: Labels, relation: TensorRelation[Any]) -> None:
    if len(labels) != len(relation.parts):
        raise RelationError(
            f"{_show(labels)} has {len(labels)} labels for a relation of shape {relation.shape} in "
            f"parts {relation.parts}"
        )


def _check_kept(labels: Labels, keep: Labels) -> None:
    for what in (labels, keep):
        if len(set(what)) < len(what):
            raise RelationError(f"a label appears twice in {_show(what)} of an aggregation")
    for label in keep:
        if label not in labels:
            hint = suggest(label, labels)
            raise RelationError(f"no dimension of {_show(labels)} has the label {label!r}{hint}")


def _show(labels: Labels) -> str:
    return f"[{' '.join(labels)}]"
