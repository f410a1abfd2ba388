"""Arrays as a caller gives them, checked and packed into those of a `Problem`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from eindecomp.errors import ProblemError
from eindecomp.solve.problem.arrays import INFINITE, Costs, Factor, Ints


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
