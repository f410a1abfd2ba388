"""The decorator for hot loops: numba compiles them once on a machine, and our cache keeps them.

Numba's own cache lies beside the source or in a folder of its own, refuses to compile where neither
can be written to, never shrinks, and does not notice that a function which is called has changed.
"""

from __future__ import annotations

import hashlib
import pickle
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from eindecomp.kernels.cache import load, store
from eindecomp.solve.clock import stopped_clock, tell_compiling

if TYPE_CHECKING:
    from numba.core.compiler import CompileResult

Function = TypeVar("Function", bound="Callable[..., Any]")


@contextmanager
def uninterrupted() -> Generator[None]:
    """Defer Ctrl-C until the block ends; only the main thread ever receives it."""
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield
        return
    waiting: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: waiting.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            before(signal.SIGINT, waiting.pop())


# Numba takes a while to load; interrupted, it leaves modules behind that can never be imported.
with stopped_clock(), uninterrupted():
    import llvmlite
    import numba
    from numba.core import compiler, serialize
    from numba.core.registry import cpu_target


class StoredLoop:
    """One compiled loop's place on disk, as a cache of numba's dispatchers.

    The key says all that the loop's code depends on but the machine and the versions.
    """

    cache_path = None

    def __init__(self, key: str) -> None:
        self.key = key

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """The loop from disk; if it is not there, numba compiles it next, which is told."""
        _make_ready()  # whether it is loaded or compiled then
        # Whatever is wrong with the file, compiling again repairs it.
        with suppress(Exception):
            data = load(self._key_of(signature))
            if data is not None:
                result: Any = compiler.CompileResult
                return result._rebuild(target, *pickle.loads(data))  # noqa: S301 - checked by load
        tell_compiling(True)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the loop to disk, once compiled."""
        # Some code holds only in this process.
        if not (result.lifted or result.library.has_dynamic_globals):
            with suppress(Exception):
                store(self._key_of(signature), serialize.dumps(result._reduce()))
        tell_compiling(False)

    def _key_of(self, signature: Any) -> str:
        return f"{_versions()}\n{self.key}\n{signature}"

    def enable(self) -> None:
        """Nothing to do: numba asks for it."""

    disable = flush = enable


def compiled(function: Function) -> Function:
    """Compile a function over arrays and numbers at its first call, or load it from disk.

    Loops call each other across the folders of the solver and are compiled into their callers, so
    the key of each holds the sources of the whole solver.
    """
    jit: Any = numba.njit
    made = jit(function, nogil=True, no_cfunc_wrapper=True)
    made.compile = _off_the_clock(made.compile)
    sources = _sources()
    if sources is not None:
        made._cache = StoredLoop(f"{function.__module__}.{function.__qualname__}\n{sources}")
    return cast("Function", made)


def _off_the_clock(compile_for: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Compile with the clock stopped, and Ctrl-C deferred: numba would lose it now and then."""

    def stop_and_compile(signature: Any) -> Any:
        with stopped_clock(), uninterrupted():
            return compile_for(signature)

    return stop_and_compile


@cache
def _sources() -> str | None:
    """The digest of all modules of the solver; None if they are not files, as in a zip."""
    paths = sorted(Path(__file__).parent.rglob("*.py"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest() if paths else None


@cache
def _make_ready() -> None:
    """Load what numba loads at its first use; interrupted there, it would stay broken."""
    target: Any = cpu_target
    with uninterrupted():
        target.typing_context.refresh()
        target.target_context.refresh()


@cache
def _versions() -> str:
    """What any compiled code depends on but its source: the versions and the processor."""
    target: Any = cpu_target.target_context
    machine = target.codegen().magic_tuple()
    python = sys.implementation.cache_tag  # a pickle holds its bytecode
    return repr((python, numba.__version__, llvmlite.__version__, np.__version__, machine))
