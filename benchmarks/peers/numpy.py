"""The chain in NumPy, as one would split it over cores by hand."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from eindecomp.kernels.cores import cores

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Way

    Array = np.ndarray[Any, Any]


@contextmanager
def panels(x: Mapping[str, Array]) -> Generator[Way]:
    """A panel of columns for each core, from start to end: nothing moves and nothing waits."""
    a, b, c, d, e = (x[name] for name in "ABCDE")
    edges = [b.shape[1] * core // cores() for core in range(cores() + 1)]
    columns = [slice(*pair) for pair in pairwise(edges)]

    def by_hand() -> Array:
        out = np.empty((a.shape[0], b.shape[1]), a.dtype)

        def panel(where: slice) -> None:
            np.matmul(a, b[:, where], out=out[:, where])
            out[:, where] += c @ (d @ e[:, where])

        with threadpool_limits(1, user_api="blas"):
            list(pool.map(panel, columns))
        return out

    with ThreadPoolExecutor(cores()) as pool:
        yield by_hand
