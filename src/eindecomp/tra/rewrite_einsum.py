"""From an EinSum and a partition vector d to the tensor-relational algebra.

The paper's rewriting, once the inputs are cut as d says:

    temp ← ⋈ with K, ℓ_X, ℓ_Y (𝓧, 𝓨)            the kernel K is the EinSum itself, on tiles
    res  ← Σ with ⊕, ℓ_X ⊙ ℓ_Y, ℓ_agg (temp)

K leaves what it aggregated as a state of ⊕, which is one number for a sum but several for, say, a
mean. So ⊕ combines states here, and the result is finished after the aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import RelationError, naming, suggest
from eindecomp.graph.arrays import to_scalar
from eindecomp.graph.checks import label_map, whole_number
from eindecomp.graph.evaluate import EinSumSteps, computing
from eindecomp.graph.infer import BareOperand, infer, label_sizes
from eindecomp.lang.dtypes import FLOAT32, DType, dtype
from eindecomp.lang.scalar import arg_name, used_scalars
from eindecomp.tra.tensor_relations import (
    TensorRelation,
    aggregate,
    distinct,
    dtype_of,
    from_tensor,
    join,
    repartition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.evaluate import State
    from eindecomp.lang.einsum import EinSum

    Array = np.ndarray[Any, Any]


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
        relations = [
            repartition(x, [d[label] for label in labels])
            for x, labels in zip(inputs, op.inputs, strict=True)
        ]
    if op.broadcast:
        # Labels that no input has come from one more input, which is used only for its labels.
        shape = [bound[label] for label in op.broadcast]
        lender = from_tensor(np.zeros(shape, bool), [d[label] for label in op.broadcast])
        op, relations = replace(op, inputs=(*op.inputs, op.broadcast)), [*relations, lender]
    steps = EinSumSteps(op, [dtype_of(x) for x in relations], numbers, types)

    def kernel(*tiles: Array) -> State:
        return steps.partial(tiles)

    with computing(op):
        partial = join(kernel, op.inputs, *relations)
        total = aggregate(steps.combine, distinct(*op.inputs), op.output, partial)
        return total.map(lambda state: steps.finish(state).astype(result))


def _numbers(given: Mapping[str, object], types: Mapping[str, DType]) -> dict[str, Any]:
    """The values of the run-time scalars that the join reads."""
    missing = [name for name in types if name not in given]
    if missing:
        raise RelationError(f"missing scalars: {', '.join(missing)}")
    return {name: to_scalar(given[name], name, t) for name, t in types.items()}


def _bound(
    op: EinSum,
    inputs: Sequence[TensorRelation[Array]],
    sizes: Mapping[str, int],
    scalar_types: Mapping[str, DType],
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
