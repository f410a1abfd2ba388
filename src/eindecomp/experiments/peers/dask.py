"""The chain in dask.array, on threads."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eindecomp.engines.threads.engine import cores
from eindecomp.experiments.peers.frameworks import dask_array

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.experiments.measure import Way

    Array = np.ndarray[Any, Any]


@contextmanager
def chain(x: Mapping[str, Array], tuned: bool) -> Generator[Way]:
    """With the chunks that dask takes itself or, `tuned`, a panel of columns for each core."""
    da = dask_array()

    def chunks(array: Array) -> object:
        return (array.shape[0], -(-array.shape[1] // cores())) if tuned else "auto"

    def compute() -> object:
        a, b, c, d, e = (da.from_array(x[name], chunks=chunks(x[name])) for name in "ABCDE")
        return (a @ b + c @ (d @ e)).compute(scheduler="threads", num_workers=cores())

    yield compute
