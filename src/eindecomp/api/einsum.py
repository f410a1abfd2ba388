"""`einsum`: plan and run one expression in one call."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

from eindecomp.engines.threads.engine import ThreadsEngine, cores, prepare
from eindecomp.graph.arrays import read_array
from eindecomp.graph.graph import Graph
from eindecomp.planner.make import plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from eindecomp.engines.threads.program import Program
    from eindecomp.lang.monoid import Monoid
    from eindecomp.lang.scalar import Expr

    Array = np.ndarray[Any, Any]

KEPT = 256  # the most expressions whose programs are kept, those used last
_ENGINE = ThreadsEngine()
_PROGRAMS: OrderedDict[Any, Program] = OrderedDict()
_LOCK = Lock()


def einsum(
    spec: str,
    *operands: object,
    join: str | Expr | None = None,
    agg: str | Monoid | None = None,
    devices: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Array:
    """Compute an extended Einstein summation on the cores of this machine.

    Without `join` the operands are multiplied, without `agg` they are summed. `devices` is how many
    pieces it is cut into, by default one for each core. `sizes` are those of output labels that no
    operand has. Planning is done once for each expression, shape and type.

    >>> import numpy as np
    >>> x, y = np.arange(4.0).reshape(2, 2), np.eye(2)
    >>> einsum("ij,jk->ik", x, y, join="(x-y)**2")
    array([[ 2.,  0.],
           [10.,  8.]])
    """
    arrays = {f"x{k}": read_array(given, f"operand {k}") for k, given in enumerate(operands)}
    shapes = tuple((array.shape, array.dtype) for array in arrays.values())
    count = cores() if devices is None else devices
    # With types, as 2.0 equals 2 but is refused.
    more = tuple((label, size, type(size)) for label, size in (sizes or {}).items())
    key = (spec, join, agg, count, type(count), shapes, more)
    program = _PROGRAMS.get(key)
    if program is None:
        program = _planned(spec, arrays, join, agg, count, sizes)
        with _LOCK:
            _PROGRAMS[key] = program
            if len(_PROGRAMS) > KEPT:
                _PROGRAMS.popitem(last=False)
    return _ENGINE.carry_out(program, arrays, ())["z"]


def _planned(
    spec: str,
    arrays: Mapping[str, Array],
    join: str | Expr | None,
    agg: str | Monoid | None,
    devices: int,
    sizes: Mapping[str, int] | None,
) -> Program:
    graph = Graph()
    for name, array in arrays.items():
        graph.input(name, {f"d{k}": size for k, size in enumerate(array.shape)}, array.dtype)
    graph.output(graph.einsum(spec, *arrays, join=join, agg=agg, name="z", sizes=sizes))
    return prepare(plan(graph, devices))
