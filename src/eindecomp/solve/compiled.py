"""The decorator for hot loops: numba compiles them once on a machine, and our cache keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from eindecomp.kernels.interrupts import uninterrupted
from eindecomp.solve.clock import stopped_clock, tell_compiling

# Numba takes a while to load; interrupted, it leaves modules behind that can never be imported.
with stopped_clock(), uninterrupted():
    import numba

    from eindecomp.kernels.cpu.compiling.stored import Stored, sources_of

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
    jit: Any = numba.njit
    made = jit(function, nogil=True, no_cfunc_wrapper=True)
    made.compile = _off_the_clock(made.compile)
    sources = sources_of(Path(__file__).parent)
    if sources is not None:
        made._cache = AnnouncedCache(f"{function.__module__}.{function.__qualname__}\n{sources}")
    return cast("Function", made)


def _off_the_clock(compile_for: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compile with the clock stopped, and Ctrl-C deferred: numba would lose it now and then."""

    def stop_and_compile(signature: Any) -> Any:
        with stopped_clock(), uninterrupted():
            return compile_for(signature)

    return stop_and_compile
