"""What makes packed arrays a problem: `Problem` refuses at birth what is not one.

Each check names what is wrong; a later one may rely on all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.errors import ProblemError

if TYPE_CHECKING:
    from eindecomp.solve.problem import Costs, Ints, Problem

_MAX_MAGNITUDE = 2**62  # the sum of one cost per table must fit an int64
_LAST_STEP = 100_000_000  # time steps are counted one by one
_INTEGERS = (np.dtype(np.int64),)
_NUMBERS = (np.dtype(np.int64), np.dtype(np.float64))
_ARRAYS = (
    ("offset", 1, _INTEGERS),
    ("unary", 1, _NUMBERS),
    ("edges", 2, _INTEGERS),
    ("table_of", 1, _INTEGERS),
    ("table_offset", 1, _INTEGERS),
    ("tables", 1, _NUMBERS),
    ("usage", 1, _NUMBERS),
    ("intervals", 2, _INTEGERS),
)
_OPTIONAL = ("usage", "intervals")


def check_problem(problem: Problem) -> None:
    """Raise `ProblemError` if these are not the arrays of a problem."""
    _check_types(problem)
    _check_variables(problem)
    _check_tables(problem)
    _check_factors(problem)
    _check_costs(problem)
    _check_usage(problem)


def check_grids(sizes: Ints, pairs: Ints, shared: Ints, grids: list[Costs]) -> None:
    """Raise if a table's shape is not its edge's: once packed, the shape is lost."""
    _check_ends(pairs, sizes.size)
    _check_sharing(shared, len(pairs), len(grids))
    shapes = np.array([g.shape if g.ndim == 2 else (-1, -1) for g in grids], dtype=np.int64)
    wrong = (shapes.reshape(-1, 2)[shared] != sizes[pairs]).any(axis=1)
    if bad := np.flatnonzero(wrong).tolist():
        (u, v), table = pairs[bad[0]].tolist(), grids[int(shared[bad[0]])]
        raise ProblemError(
            f"table of edge {bad[0]} ({u}, {v}) has shape {table.shape}, "
            f"not {tuple(sizes[[u, v]].tolist())}"
        )


def _check_types(problem: Problem) -> None:
    for name, dimensions, kinds in _ARRAYS:
        given: Any = getattr(problem, name)
        if given is not None or name not in _OPTIONAL:
            _check_array(name, given, dimensions, kinds)
    factors: Any = problem.factors
    if not isinstance(factors, tuple):
        raise ProblemError(f"factors must be a tuple, not {type(factors).__name__}")


def _check_array(name: str, given: Any, dimensions: int | None, kinds: tuple[Any, ...]) -> None:
    if not isinstance(given, np.ndarray):
        raise ProblemError(f"{name} must be a NumPy array, not {type(given).__name__}")
    if dimensions is not None and given.ndim != dimensions:
        raise ProblemError(f"{name} must have {dimensions} dimensions, not shape {given.shape}")
    if given.dtype not in kinds:
        wanted = " or ".join(kind.name for kind in kinds)
        raise ProblemError(f"{name} must be {wanted}, not {given.dtype}")


def _check_variables(problem: Problem) -> None:
    offset = problem.offset
    if offset.size == 0 or offset[0] != 0 or offset[-1] != problem.unary.size:
        raise ProblemError(
            f"offset must start at 0 and end at the number of unary costs, {problem.unary.size}"
        )
    # Not by differences: those of hostile numbers may overflow.
    if bad := np.flatnonzero(offset[1:] <= offset[:-1]).tolist():
        raise ProblemError(f"variable {bad[0]} has no choices")


def _check_tables(problem: Problem) -> None:
    offset, domains = problem.table_offset, problem.domains
    if problem.edges.shape[1] != 2:
        raise ProblemError(f"edges must be pairs of variables, not of shape {problem.edges.shape}")
    _check_ends(problem.edges, problem.size)
    if offset.size == 0 or offset[0] != 0 or offset[-1] != problem.tables.size:
        raise ProblemError(
            "table_offset must start at 0 and end at the number of costs in tables, "
            f"{problem.tables.size}"
        )
    if bad := np.flatnonzero(offset[1:] < offset[:-1]).tolist():
        raise ProblemError(f"table_offset must not fall, but does after table {bad[0]}")
    held = np.diff(offset)
    _check_sharing(problem.table_of, len(problem.edges), held.size)
    cells = domains[problem.edges[:, 0]] * domains[problem.edges[:, 1]]
    if bad := np.flatnonzero(held[problem.table_of] != cells).tolist():
        u, v = problem.edges[bad[0]].tolist()
        raise ProblemError(
            f"table of edge {bad[0]} ({u}, {v}) has {held[problem.table_of[bad[0]]]} costs, "
            f"not {domains[u]} × {domains[v]}"
        )
    if bad := np.flatnonzero(held == 0).tolist():
        raise ProblemError(f"table {bad[0]} is empty")


def _check_sharing(shared: Ints, edges: int, tables: int) -> None:
    if shared.size != edges:
        raise ProblemError(f"{edges} edges but {shared.size} tables")
    if bad := np.flatnonzero((shared < 0) | (shared >= tables)).tolist():
        raise ProblemError(f"edge {bad[0]} has table {shared[bad[0]]}, of {tables} tables")


def _check_ends(pairs: Ints, size: int) -> None:
    if bad := np.flatnonzero(((pairs < 0) | (pairs >= size)).any(axis=1)).tolist():
        raise ProblemError(f"edge {bad[0]} joins {pairs[bad[0]].tolist()}, of {size} variables")


def _check_factors(problem: Problem) -> None:
    for number, factor in enumerate(problem.factors):
        scope = _scope_of(factor, number)
        named = f"factor {number} over {scope}"
        if any(i < 0 or i >= problem.size for i in scope):
            raise ProblemError(f"{named}, of {problem.size} variables")
        _check_array(f"the table of {named}", getattr(factor, "table", None), None, _NUMBERS)
        shape = tuple(problem.domains[list(scope)].tolist())
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
        raise ProblemError(f"factor {number} is over no variable")
    return tuple(int(i) for i in variables)


def _check_costs(problem: Problem) -> None:
    named = [("unary", problem.unary), ("tables", problem.tables)]
    distinct = {id(f.table): (f"factor {n}", f.table) for n, f in enumerate(problem.factors)}
    named += [(name, table.ravel()) for name, table in distinct.values()]
    for name, costs in named:
        if costs.dtype != problem.unary.dtype:
            raise ProblemError(
                f"{name} costs are {costs.dtype} but unary costs are {problem.unary.dtype}"
            )
        if costs.dtype.kind == "f" and (np.isnan(costs).any() or np.isneginf(costs).any()):
            raise ProblemError(f"{name} costs contain NaN or -∞")
        if costs.dtype.kind == "i" and (costs == np.iinfo(np.int64).min).any():
            raise ProblemError(
                f"{name} costs contain the least 64-bit integer, which has no opposite"
            )
    if problem.integral and problem.magnitude >= _MAX_MAGNITUDE:
        raise ProblemError(
            "integer costs add up to more than 2**62; write ∞ as INFINITE or use floats"
        )


def _check_usage(problem: Problem) -> None:
    usage, intervals = problem.usage, problem.intervals
    if (usage is None) != (intervals is None) or (usage is None and problem.limited):
        raise ProblemError("usage, intervals and limit go together")
    if usage is None or intervals is None:
        return
    if usage.size != problem.unary.size:
        raise ProblemError(f"{usage.size} usages for {problem.unary.size} choices")
    if not np.all(np.isfinite(usage)) or np.any(usage < 0):
        raise ProblemError("usages must be finite and not negative")
    if float(np.sum(usage.astype(np.float64))) >= _MAX_MAGNITUDE:
        raise ProblemError("usages add up to more than 2**62")
    if intervals.shape != (problem.size, 2):
        raise ProblemError(f"intervals must be {problem.size} pairs, not {intervals.shape}")
    wrong = (intervals[:, 0] < 0) | (intervals[:, 1] < intervals[:, 0])
    if bad := np.flatnonzero(wrong).tolist():
        raise ProblemError(
            f"the interval of variable {bad[0]} is {intervals[bad[0]].tolist()}; "
            "it must be [start, end) with 0 ≤ start ≤ end"
        )
    if intervals.max(initial=0) > _LAST_STEP:
        raise ProblemError(
            f"time step {intervals.max()} is beyond {_LAST_STEP}: number them closer"
        )
    _check_limit(problem.limit)


def _check_limit(limit: Any) -> None:
    if limit is None:
        return
    if not _is_integer(limit) and not isinstance(limit, float | np.floating):
        raise ProblemError(f"the usage limit must be a number, not {type(limit).__name__}")
    if _is_integer(limit) and limit >= 2**64:
        raise ProblemError("the usage limit is beyond 64 bits")
    if not limit >= 0:  # as NaN is not
        raise ProblemError(f"the usage limit must not be negative, not {limit}")


def _is_integer(given: Any) -> bool:
    return isinstance(given, int | np.integer) and not isinstance(given, bool)
