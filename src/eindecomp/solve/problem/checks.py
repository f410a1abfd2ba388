"""What makes arrays a problem: `Problem.of` packs them, and `Problem` checks them when created.

Each names what is wrong, and each relies on those that `Problem` runs before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from eindecomp.errors import ProblemError
from eindecomp.solve.problem.arrays import INFINITE, Costs, Factor, Ints

_MAX_MAGNITUDE = 2**62  # the sum of one cost per table must fit an int64
_LAST_STEP = 100_000_000  # time steps are counted one by one
_INTEGERS = (np.dtype(np.int64),)
_NUMBERS = (np.dtype(np.int64), np.dtype(np.float64))
ARRAYS = {
    "offset": (1, _INTEGERS),
    "unary": (1, _NUMBERS),
    "edges": (2, _INTEGERS),
    "table_of": (1, _INTEGERS),
    "table_offset": (1, _INTEGERS),
    "tables": (1, _NUMBERS),
    "usage": (1, _NUMBERS),
    "intervals": (2, _INTEGERS),
}
"""How many dimensions each array of a problem has, and which types."""
_OPTIONAL = ("usage", "intervals")


def check_arrays(given: Mapping[str, Any]) -> None:
    """Raise unless these are arrays of the right types and numbers of dimensions."""
    for name, (dimensions, types) in ARRAYS.items():
        if given[name] is not None or name not in _OPTIONAL:
            _check_array(name, given[name], dimensions, types)


def _check_array(name: str, given: Any, dimensions: int | None, types: tuple[Any, ...]) -> None:
    if not isinstance(given, np.ndarray):
        raise ProblemError(f"{name} must be a NumPy array, not {type(given).__name__}")
    if dimensions is not None and given.ndim != dimensions:
        raise ProblemError(f"{name} must have {dimensions} dimensions, not shape {given.shape}")
    if given.dtype not in types:
        wanted = " or ".join(kind.name for kind in types)
        raise ProblemError(f"{name} must be {wanted}, not {given.dtype}")


def check_variables(offset: Ints, unary: Costs) -> None:
    """Raise unless every variable owns a part of the unary costs."""
    if offset.size == 0 or offset[0] != 0 or offset[-1] != unary.size:
        raise ProblemError(
            f"offset must start at 0 and end at the number of unary costs, {unary.size}"
        )
    # Compared, not subtracted: differences of malicious numbers may overflow.
    if bad := np.flatnonzero(offset[1:] <= offset[:-1]).tolist():
        raise ProblemError(f"variable {bad[0]} has no choices")


def check_edges(edges: Ints, domains: Ints) -> None:
    """Raise unless edges are pairs of variables."""
    if edges.shape[1] != 2:
        raise ProblemError(f"edges must be pairs of variables, not of shape {edges.shape}")
    if bad := np.flatnonzero(((edges < 0) | (edges >= domains.size)).any(axis=1)).tolist():
        raise ProblemError(
            f"edge {bad[0]} joins {edges[bad[0]].tolist()}, of {domains.size} variables"
        )


def check_grids(edges: Ints, domains: Ints, table_of: Ints, grids: list[Costs]) -> None:
    """Raise if a table's shape is not that of its edges: once packed, the shape is lost."""
    _check_sharing(table_of, len(edges), len(grids))
    shapes = np.array([g.shape if g.ndim == 2 else (-1, -1) for g in grids], dtype=np.int64)
    wrong = (shapes.reshape(-1, 2)[table_of] != domains[edges]).any(axis=1)
    if bad := np.flatnonzero(wrong).tolist():
        (u, v), table = edges[bad[0]].tolist(), grids[int(table_of[bad[0]])]
        raise ProblemError(
            f"table of edge {bad[0]} ({u}, {v}) has shape {table.shape}, "
            f"not {tuple(domains[[u, v]].tolist())}"
        )


def check_tables(
    edges: Ints, domains: Ints, table_of: Ints, table_offset: Ints, tables: Costs
) -> None:
    """Raise unless every edge has a table with a cost for each pair of choices."""
    if table_offset.size == 0 or table_offset[0] != 0 or table_offset[-1] != tables.size:
        raise ProblemError(
            f"table_offset must start at 0 and end at the number of costs in tables, {tables.size}"
        )
    if bad := np.flatnonzero(table_offset[1:] < table_offset[:-1]).tolist():
        raise ProblemError(f"table_offset must not decrease, but does after table {bad[0]}")
    held = np.diff(table_offset)
    _check_sharing(table_of, len(edges), held.size)
    cells = domains[edges[:, 0]] * domains[edges[:, 1]]
    if bad := np.flatnonzero(held[table_of] != cells).tolist():
        u, v = edges[bad[0]].tolist()
        raise ProblemError(
            f"table of edge {bad[0]} ({u}, {v}) has {held[table_of[bad[0]]]} costs, "
            f"not {domains[u]} × {domains[v]}"
        )
    if bad := np.flatnonzero(held == 0).tolist():
        raise ProblemError(f"table {bad[0]} is empty")


def _check_sharing(table_of: Ints, edges: int, tables: int) -> None:
    if table_of.size != edges:
        raise ProblemError(f"{edges} edges but {table_of.size} tables")
    if bad := np.flatnonzero((table_of < 0) | (table_of >= tables)).tolist():
        raise ProblemError(f"edge {bad[0]} has table {table_of[bad[0]]}, of {tables} tables")


def check_factors(factors: Any, domains: Ints) -> None:
    """Raise unless every factor has a cost for each choice of its variables together."""
    if not isinstance(factors, tuple):
        raise ProblemError(f"factors must be a tuple, not {type(factors).__name__}")
    for number, factor in enumerate(cast("tuple[Any, ...]", factors)):
        scope = _scope_of(factor, number)
        named = f"factor {number} over {scope}"
        if any(i < 0 or i >= domains.size for i in scope):
            raise ProblemError(f"{named}, of {domains.size} variables")
        _check_array(f"the table of {named}", getattr(factor, "table", None), None, _NUMBERS)
        shape = tuple(domains[list(scope)].tolist())
        if factor.table.shape != shape:
            raise ProblemError(f"{named} has shape {factor.table.shape}, not {shape}")


def _scope_of(factor: Any, number: int) -> tuple[int, ...]:
    scope: Any = getattr(factor, "scope", None)
    if not isinstance(scope, tuple):
        raise ProblemError(f"factor {number} must have a scope, a tuple of variables")
    variables = cast("tuple[Any, ...]", scope)
    if not all(_is_integer(i) for i in variables):
        raise ProblemError(f"the scope of factor {number} must be integers")
    if not variables:
        raise ProblemError(f"factor {number} has an empty scope")
    return tuple(int(i) for i in variables)


def check_costs(unary: Costs, tables: Costs, factors: tuple[Factor, ...]) -> None:
    """Raise unless all costs are of one type, and none is NaN, -∞ or the least integer."""
    named = [("unary", unary), ("tables", tables)]
    distinct = {id(f.table): (f"factor {n}", f.table) for n, f in enumerate(factors)}
    named += [(name, table.ravel()) for name, table in distinct.values()]
    for name, costs in named:
        if costs.dtype != unary.dtype:
            raise ProblemError(f"{name} costs are {costs.dtype} but unary costs are {unary.dtype}")
        if costs.dtype.kind == "f" and (np.isnan(costs).any() or np.isneginf(costs).any()):
            raise ProblemError(f"{name} costs contain NaN or -∞")
        if costs.dtype.kind == "i" and (costs == np.iinfo(np.int64).min).any():
            raise ProblemError(
                f"{name} costs contain the least 64-bit integer, which cannot be negated"
            )


def check_magnitude(magnitude: float) -> None:
    """Raise if integer costs may add up to more than an int64 holds."""
    if magnitude >= _MAX_MAGNITUDE:
        raise ProblemError(
            "integer costs add up to more than 2**62; write ∞ as INFINITE or use floats"
        )


def check_usage(usage: Costs | None, intervals: Ints | None, limit: Any, domains: Ints) -> None:
    """Raise unless usages, intervals and limit are all given or none is, and all make sense."""
    if (usage is None) != (intervals is None) or (usage is None and limit is not None):
        raise ProblemError("usage, intervals and limit go together")
    if usage is None or intervals is None:
        return
    if usage.size != domains.sum():
        raise ProblemError(f"{usage.size} usages for {domains.sum()} choices")
    if not np.all(np.isfinite(usage)) or np.any(usage < 0):
        raise ProblemError("usages must be finite and not negative")
    if float(np.sum(usage.astype(np.float64))) >= _MAX_MAGNITUDE:
        raise ProblemError("usages add up to more than 2**62")
    if intervals.shape != (domains.size, 2):
        raise ProblemError(f"intervals must be {domains.size} pairs, not {intervals.shape}")
    wrong = (intervals[:, 0] < 0) | (intervals[:, 1] < intervals[:, 0])
    if bad := np.flatnonzero(wrong).tolist():
        raise ProblemError(
            f"the interval of variable {bad[0]} is {intervals[bad[0]].tolist()}; "
            "it must be [start, end) with 0 ≤ start ≤ end"
        )
    if intervals.max(initial=0) > _LAST_STEP:
        raise ProblemError(
            f"time step {intervals.max()} is beyond {_LAST_STEP}: number the steps more closely"
        )
    _check_limit(limit)


def _check_limit(limit: Any) -> None:
    if limit is None:
        return
    if not _is_integer(limit) and not isinstance(limit, float | np.floating):
        raise ProblemError(f"the usage limit must be a number, not {type(limit).__name__}")
    if _is_integer(limit) and limit >= 2**64:
        raise ProblemError("the usage limit is beyond 64 bits")
    if not limit >= 0:  # true of NaN as well
        raise ProblemError(f"the usage limit must be 0 or more, not {limit}")


def _is_integer(given: Any) -> bool:
    return isinstance(given, int | np.integer) and not isinstance(given, bool)


def to_arrays(given: Sequence[ArrayLike], what: str) -> list[Costs]:
    """A sequence of arrays; `what` names it in messages."""
    try:
        return [np.asarray(part) for part in given]
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{what} must be a sequence of arrays: {error}") from None


def to_factors(factors: Sequence[tuple[Sequence[int], ArrayLike]]) -> list[Factor]:
    """Factors from pairs of a scope and a table."""
    try:
        parts = [(to_integers(scope, "the scope of a factor"), table) for scope, table in factors]
        return [Factor(tuple(scope.tolist()), np.asarray(table)) for scope, table in parts]
    except ProblemError:
        raise
    except (TypeError, ValueError) as error:
        raise ProblemError(f"factors must be pairs of a scope and a table: {error}") from None


def to_integers(given: ArrayLike, what: str, *, pairs: bool = False) -> Ints:
    """An array of integers, or of pairs of them; an empty one may be of any type."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ProblemError(f"{what} must be an array: {error}") from None
    if array.size == 0:
        return np.zeros((0, 2) if pairs else 0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ProblemError(f"{what} must be integers, not {array.dtype}")
    if pairs and (array.ndim != 2 or array.shape[1] != 2):
        raise ProblemError(f"{what} must be pairs, not an array of shape {array.shape}")
    if not pairs and array.ndim != 1:
        raise ProblemError(f"{what} must be one-dimensional, not of shape {array.shape}")
    return array.astype(np.int64)


def all_integers(arrays: list[Costs]) -> bool:
    """Whether no array holds anything but integers."""
    return all(array.dtype.kind in "iu" for array in arrays if array.size)


def concatenate(arrays: list[Costs], integral: bool, what: str = "costs") -> Costs:
    """All arrays one after the other, as int64 if `integral` and as float64 otherwise."""
    if not arrays:
        return np.zeros(0, dtype=np.int64 if integral else np.float64)
    return np.concatenate([_converted(array.ravel(), integral, what) for array in arrays])


def with_type(factors: list[Factor], integral: bool) -> tuple[Factor, ...]:
    """The factors with tables of int64 or float64; factors that share a table still do."""
    distinct = {id(factor.table): factor.table for factor in factors}
    converted = {key: _converted(table, integral) for key, table in distinct.items()}
    return tuple(Factor(factor.scope, converted[id(factor.table)]) for factor in factors)


def pack_usage(given: Sequence[ArrayLike], sizes: Ints) -> Costs:
    """One row of usages per variable, packed."""
    rows = to_arrays(given, "usage")
    if len(rows) != sizes.size:
        raise ProblemError(f"{len(rows)} rows of usage for {sizes.size} variables")
    for i, (row, size) in enumerate(zip(rows, sizes.tolist(), strict=True)):
        if row.shape != (size,):
            raise ProblemError(f"usage of variable {i} has shape {row.shape}, not {(size,)}")
    return concatenate(rows, all_integers(rows), "usages")


def _converted(array: Costs, integral: bool, what: str = "costs") -> Costs:
    if array.dtype.kind not in "iufb" and array.size:
        raise ProblemError(f"{what} must be numbers, not {array.dtype}")
    if array.dtype.kind == "u" and array.size and array.max() > INFINITE:
        raise ProblemError(
            f"{what} contain {array.max()}, which does not fit a signed 64-bit integer"
        )
    if array.dtype.kind in "iu" and not integral:
        return np.where(array == INFINITE, np.inf, array.astype(np.float64))
    return array.astype(np.int64 if integral else np.float64)
