"""Tensor relations, functions from keys to tiles; ⋈, Σ and Π on them; EinSums rewritten to these.

The paper's rewriting of an EinSum under a partition vector d, once the inputs are cut as d says:

    temp ← ⋈ with K, ℓ_X, ℓ_Y (𝓧, 𝓨)            the kernel K is the EinSum itself, on tiles
    res  ← Σ with ⊕, ℓ_X ⊙ ℓ_Y, ℓ_agg (temp)

K leaves what it aggregated as a state of ⊕, which is one number for a sum but several for, say, a
mean. So ⊕ combines states here, and the result is finished after the aggregation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Generic, TypeVar

import numpy as np

from eindecomp.errors import RelationError, naming, suggest
from eindecomp.graph.arrays import read_array, to_scalars
from eindecomp.graph.checks import label_map, whole_number
from eindecomp.graph.evaluate import EinSumSteps, computing
from eindecomp.graph.infer import BareOperand, infer, label_sizes
from eindecomp.graph.vertex import Shape, check_shape
from eindecomp.lang.dtypes import FLOAT32, DType, ScalarTypes, dtype
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import arg_name, used_scalars

Array = np.ndarray[Any, Any]


Key = tuple[int, ...]
Parts = tuple[int, ...]

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, eq=False)
class TensorRelation(Generic[T]):
    """A function from the keys of I(parts) to tiles.

    A key names a box of the index space of size `shape`: one piece of each dimension. In the
    relation of a tensor, the tile of a key is what lies in its box. The tile of a join is what the
    kernel made of the box: it may have fewer dimensions, or be the state of an aggregation instead
    of an array.

    >>> TensorRelation((4,), (2,), {(0,): np.array([1, 2])})
    Traceback (most recent call last):
    eindecomp.errors.RelationError: a relation of shape (4,) in parts (2,) needs a tile for key (1,)
    """

    shape: Shape
    parts: Parts
    tiles: Mapping[Key, T]

    def __post_init__(self) -> None:
        check_parts(self.parts, self.shape)
        own = set(keys(self.parts))
        what = f"a relation of shape {self.shape} in parts {self.parts}"
        for key in sorted(own - self.tiles.keys()):
            raise RelationError(f"{what} needs a tile for key {key}")
        for key in self.tiles.keys() - own:
            raise RelationError(f"{what} has no key {key}")

    def __getitem__(self, key: Key) -> T:
        if key not in self.tiles:
            raise RelationError(f"a relation in parts {self.parts} has no key {key}")
        return self.tiles[key]

    def map(self, function: Callable[[T], U]) -> TensorRelation[U]:
        """The relation of what a function makes of each tile."""
        made = {key: function(tile) for key, tile in self.tiles.items()}
        return TensorRelation(self.shape, self.parts, made)


def keys(parts: Parts) -> Iterator[Key]:
    """I(d): every key of a relation cut into these parts, the last entry running fastest.

    >>> list(keys((2, 2)))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return itertools.product(*(range(m) for m in parts))


def box(key: Key, shape: Shape, parts: Parts) -> tuple[slice, ...]:
    """Where the tile of a key lies in the tensor; pieces of a dimension differ by at most one.

    >>> box((0, 1), (4, 5), (1, 2))
    (slice(0, 4, None), slice(2, 5, None))
    """
    dimensions = zip(key, shape, parts, strict=True)
    return tuple(slice(k * n // m, (k + 1) * n // m) for k, n, m in dimensions)


def from_tensor(tensor: object, parts: Sequence[int]) -> TensorRelation[Array]:
    """The relation 𝓡 ≡ R of an array R, cut into `parts` pieces along its dimensions.

    >>> from_tensor([[1, 2, 5], [3, 4, 7]], (1, 3))[0, 2]
    array([[5],
           [7]])
    """
    array = read_array(tensor, "tensor")
    array = array.astype(dtype(array.dtype), copy=False)
    cut = check_parts(parts, array.shape)
    # The dots keep a tensor of rank 0 an array; a relation's tiles are its own.
    tiles = {key: array[(*box(key, array.shape, cut), ...)].copy() for key in keys(cut)}
    return TensorRelation(array.shape, cut, tiles)


def to_tensor(relation: TensorRelation[Array]) -> Array:
    """The tensor R ≡ 𝓡 that a relation stores.

    >>> to_tensor(from_tensor([1, 2, 5], (2,)))
    array([1, 2, 5])
    """
    shape, parts = relation.shape, relation.parts
    tensor = np.empty(shape, dtype_of(relation))
    for key, tile in relation.tiles.items():
        place = box(key, shape, parts)
        room = tuple(side.stop - side.start for side in place)
        if tile.shape != room:
            raise RelationError(
                f"no tensor of shape {shape} has the tile of key {key} in parts {parts}: its shape "
                f"is {tile.shape}, not {room} (the result of a join is aggregated first)"
            )
        tensor[place] = tile
    return tensor


def dtype_of(relation: TensorRelation[Array]) -> DType:
    """The type of the elements, the same in all tiles."""
    types = sorted({str(np.asarray(tile).dtype) for tile in relation.tiles.values()})
    if len(types) > 1:
        raise RelationError(f"the tiles of one tensor have several types: {', '.join(types)}")
    return dtype(types[0])


def check_parts(parts: Sequence[int], shape: Shape) -> Parts:
    """Return `parts` as whole numbers, if a tensor of this shape can be cut so."""
    check_shape(shape)
    if len(parts) != len(shape):
        raise RelationError(
            f"parts {tuple(parts)} has {len(parts)} entries, but shape {shape} has "
            f"{len(shape)} dimensions"
        )
    cut = tuple(whole_number(m, "a number of pieces") for m in parts)
    for k, (m, n) in enumerate(zip(cut, shape, strict=True)):
        if not 1 <= m <= max(n, 1):
            raise RelationError(
                f"dimension {k} of shape {shape} cannot be cut into {m} pieces: it has size {n}"
            )
    return cut


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
    made = {key: reduce(combine, tiles) for key, tiles in groups.items()}
    shape, parts = (project(own, keep, labels) for own in (relation.shape, relation.parts))
    return TensorRelation(shape, parts, made)


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


def _by_label(labels: Sequence[Labels], vectors: Sequence[Shape], what: str) -> dict[str, int]:
    """The entry of each label of ℓ_X ⊙ ℓ_Y ⊙ …, on which all that have the label must agree."""
    entries: dict[str, tuple[int, Labels]] = {}
    for own, vector in zip(labels, vectors, strict=True):
        for label, entry in zip(own, vector, strict=True):
            before, place = entries.setdefault(label, (entry, own))
            if before != entry:
                raise RelationError(
                    f"keys do not match: {what.format(label, before)} in {_show(place)} but "
                    f"{entry} in {_show(own)}"
                )
    return {label: entry for label, (entry, _) in entries.items()}


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


def rewrite_einsum(
    op: EinSum,
    parts: Mapping[str, int],
    inputs: Sequence[TensorRelation[Array]],
    *,
    sizes: Mapping[str, int] | None = None,
    scalars: Mapping[str, object] | None = None,
    scalar_types: Mapping[str, object] | None = None,
) -> TensorRelation[Array]:
    """The relation 𝓩 ≡ Z of an EinSum, computed under the partition vector d = `parts`.

    d says into how many pieces each label is cut; labels left out are whole. Inputs come in any
    partition; the result has the parts d[ℓ_Z]. `sizes` are those of output labels that no input
    has, `scalars` the values of run-time scalars, float32 unless `scalar_types` says otherwise.

    >>> from eindecomp.lang.einsum import EinSum, product
    >>> from eindecomp.lang.monoid import SUM
    >>> matmul = EinSum((("i", "j"), ("j", "k")), ("i", "k"), product(2), SUM)
    >>> X, Y = from_tensor([[1, 2], [3, 4]], (1, 1)), from_tensor([[5, 6], [7, 8]], (2, 1))
    >>> rewrite_einsum(matmul, {"j": 2, "k": 2}, [X, Y]).tiles
    {(0, 0): array([[19], [43]]), (0, 1): array([[22], [50]])}
    """
    with naming(str(op)):
        types = {n: dtype((scalar_types or {}).get(n, FLOAT32)) for n in used_scalars(op.join)}
        numbers = _numbers(scalars or {}, types)
        bound, result = _bound(op, inputs, label_map(sizes or {}), types)
        d = _partition_vector(parts, bound)
        pairs = zip(inputs, op.inputs, strict=True)
        relations = [repartition(x, [d[label] for label in labels]) for x, labels in pairs]
    if op.broadcast:
        # Labels that no input has come from one more input, which is used only for its labels.
        shape = [bound[label] for label in op.broadcast]
        lender = from_tensor(np.zeros(shape, bool), [d[label] for label in op.broadcast])
        op, relations = replace(op, inputs=(*op.inputs, op.broadcast)), [*relations, lender]
    steps = EinSumSteps(op, [dtype_of(x) for x in relations], numbers, types)

    with computing(op):
        partial = join(lambda *tiles: steps.partial(tiles), op.inputs, *relations)
        total = aggregate(steps.combine, distinct(*op.inputs), op.output, partial)
        return total.map(lambda state: steps.finish(state).astype(result))


def _numbers(given: Mapping[str, object], types: ScalarTypes) -> dict[str, Any]:
    """The values of the run-time scalars that the join reads."""
    missing = [name for name in types if name not in given]
    if missing:
        raise RelationError(f"missing scalars: {', '.join(missing)}")
    return to_scalars(given, types)


def _bound(
    op: EinSum,
    inputs: Sequence[TensorRelation[Array]],
    sizes: Mapping[str, int],
    scalar_types: ScalarTypes,
) -> tuple[dict[str, int], DType]:
    """The size of every label, and the type of the result."""
    for k, x in enumerate(inputs):
        if not isinstance(x, TensorRelation):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RelationError(
                f"input {k} is of type {type(x).__name__}, not a TensorRelation: use from_tensor"
            )
    operands = [BareOperand(arg_name(k), x.shape, dtype_of(x)) for k, x in enumerate(inputs)]
    _, result = infer(op, operands, sizes, scalar_types)
    bound = label_sizes(op.inputs, operands)
    for label, size in sizes.items():
        if label not in op.output:
            raise RelationError(f"a size for {label!r}, which is not a label of the output")
        if bound.setdefault(label, size) != size:
            raise RelationError(f"label {label!r} has size {bound[label]}, not {size}")
    return bound, result


def _partition_vector(parts: Mapping[str, int], bound: Mapping[str, int]) -> dict[str, int]:
    """How many pieces every label is cut into."""
    if not isinstance(parts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RelationError(
            f"a partition vector must map labels to numbers of pieces, got {parts!r}"
        )
    for label, pieces in parts.items():
        if label not in bound:
            raise RelationError(f"no label {label!r} to cut{suggest(str(label), bound)}")
        size, wanted = bound[label], whole_number(pieces, f"the number of pieces of {label!r}")
        if not 1 <= wanted <= max(size, 1):
            raise RelationError(
                f"label {label!r} of size {size} cannot be cut into {wanted} pieces"
            )
    return {label: int(parts.get(label, 1)) for label in bound}
