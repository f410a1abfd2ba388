"""`einsum`: plan and run one expression in one call."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eindecomp.api.compile import compile as compile_plan
from eindecomp.graph.arrays import read_array
from eindecomp.graph.graph import Graph
from eindecomp.kernels.cores import cores
from eindecomp.planner.make import plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from eindecomp.engines.engine import Engine
    from eindecomp.engines.executable import Executable
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.monoid import Monoid
    from eindecomp.lang.scalar import Expr

    Array = np.ndarray[Any, Any]

KEPT = 256  # the most expressions whose executables are kept, those used last


def einsum(
    spec: str,
    *operands: object,
    join: str | Expr | None = None,
    agg: str | Monoid | None = None,
    devices: int | None = None,
    sizes: Mapping[str, int] | None = None,
    engine: str | Engine = "threads",
) -> Array:
    """Compute an extended Einstein summation, by default on the cores of this machine.

    Planning is done once for each expression, shape and type.

    Args:
        spec: The labels of operands and result, such as `"ij,jk->ik"` or `"row col -> row"`.
        *operands: Arrays, such as `x, y`.
        join: How operands are combined, such as `"(x-y)**2"`; by default they are multiplied.
        agg: How labels that the result lacks are aggregated, such as `"max"`; by default summed.
        devices: How many pieces it is cut into, such as `4`; by default one for each core.
        sizes: Those of output labels that no operand has, such as `{"n": 3}`.
        engine: A name, such as `"threads"`, or an engine.

    Returns:
        The result as an array.

    Raises:
        ExpressionError: The spec, the join or the aggregation is not well formed.
        GraphError: The operands do not fit the spec.

    Examples:
        >>> import numpy as np
        >>> x, y = np.arange(4.0).reshape(2, 2), np.eye(2)
        >>> einsum("ij,jk->ik", x, y, join="(x-y)**2")
        array([[ 2.,  0.],
               [10.,  8.]])
    """
    arrays = {f"x{k}": read_array(given, f"operand {k}") for k, given in enumerate(operands)}
    types = tuple((array.shape, array.dtype) for array in arrays.values())
    count = cores() if devices is None else devices
    # With types, as 2.0 equals 2 but is refused.
    more = tuple((label, size, type(size)) for label, size in (sizes or {}).items())
    executable = _executable(spec, join, agg, count, types, more, engine)
    return executable.run_checked(arrays)["z"]


@lru_cache(maxsize=KEPT, typed=True)
def _executable(
    spec: str,
    join: str | Expr | None,
    agg: str | Monoid | None,
    devices: int,
    types: tuple[tuple[tuple[int, ...], DType], ...],
    sizes: tuple[tuple[str, int, type], ...],
    engine: str | Engine,
) -> Executable:
    graph = Graph()
    for k, (shape, dtype) in enumerate(types):
        graph.input(f"x{k}", {f"d{axis}": size for axis, size in enumerate(shape)}, dtype)
    names = [vertex.name for vertex in graph.inputs]
    more = {label: size for label, size, _ in sizes}
    graph.output(graph.einsum(spec, *names, join=join, agg=agg, name="z", sizes=more))
    return compile_plan(plan(graph, devices), engine)
