"""The chain in dask.array, on threads."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from eindecomp.kernels.cores import cores
from peers.frameworks import dask_array

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.experiments.measure import Way

    Array = np.ndarray[Any, Any]


@contextmanager
def chain(x: Mapping[str, Array], tuned: bool) -> Generator[Way]:
    """With the chunks that dask takes itself or, `tuned`, as a person would set it up.

    That is a panel of the result's columns for each core, and with it of B and E, the others whole;
    and BLAS held to the thread that asks it.
    """
    da = dask_array()

    def chunks(name: str) -> object:
        rows, columns = x[name].shape
        if not tuned:
            return "auto"
        return (rows, -(-columns // cores()) if name in "BE" else columns)

    def compute() -> object:
        a, b, c, d, e = (da.from_array(x[name], chunks=chunks(name)) for name in "ABCDE")
        held = threadpool_limits(1, user_api="blas") if tuned else nullcontext()
        with held:
            return (a @ b + c @ (d @ e)).compute(scheduler="threads", num_workers=cores())

    yield compute
