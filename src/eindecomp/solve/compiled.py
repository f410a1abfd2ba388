"""The decorator for hot loops: numba compiles them once on a machine, and our cache keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba

from eindecomp.kernels.cpu.compiling.stored import Stored, sources_of
from eindecomp.solve.compile_events import tell_compiling

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba.core.compiler import CompileResult

Function = TypeVar("Function", bound="Callable[..., Any]")


class AnnouncedCache(Stored):
    """A compiled loop's place on disk, which tells when the loop is compiled instead of loaded."""

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """The loop from disk; if it is not there, numba compiles it next."""
        loaded = super().load_overload(signature, target)
        if loaded is None:
            tell_compiling(True)
        return loaded

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the loop to disk, once compiled."""
        super().save_overload(signature, result)
        tell_compiling(False)


def compiled(function: Function) -> Function:
    """Compile a function over arrays and numbers at its first call, or load it from disk.

    Loops call each other across the folders of the solver and are compiled into their callers, so
    the key of each holds the sources of the whole solver.
    """
    made: Any = numba.njit(cast("Any", function), nogil=True)
    sources = sources_of(Path(__file__).parent)
    if sources is not None:
        made._cache = AnnouncedCache(f"{function.__module__}.{function.__qualname__}\n{sources}")
    return cast("Function", made)
