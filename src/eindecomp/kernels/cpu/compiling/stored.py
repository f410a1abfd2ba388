"""Functions that numba compiles, kept on disk by our own `cache`.

Numba's own cache lies beside the source or in a folder of its own, refuses to compile where neither
can be written to, never shrinks, and does not notice that a function which is called has changed.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import llvmlite
import numba
import numpy as np
from numba.core import serialize
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target

from eindecomp.kernels.cache import load, store
from eindecomp.kernels.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")


class Stored:
    """One compiled function's place on disk, as a cache of numba's dispatchers.

    The key says all that the function's code depends on but the machine and the versions.
    """

    cache_path = None

    def __init__(self, key: str) -> None:
        self.key = key
        self.loaded = False

    def load_overload(self, signature: Any, target: Any) -> CompileResult | None:
        """The function from disk, or None."""
        make_ready()  # whether it is loaded or compiled then
        # Whatever is wrong with the file, compiling again repairs it.
        with suppress(Exception):
            data = load(self._key_of(signature))
            if data is not None:
                result: Any = CompileResult
                found = result._rebuild(target, *pickle.loads(data))  # noqa: S301 - checked by load
                self.loaded = True
                return found
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the function to disk."""
        if result.lifted or result.library.has_dynamic_globals:  # holds only in this process
            return
        with suppress(Exception):
            store(self._key_of(signature), serialize.dumps(result._reduce()))

    def _key_of(self, signature: Any) -> str:
        return f"{versions()}\n{self.key}\n{signature}"

    def enable(self) -> None:
        """Nothing to do: numba asks for it."""

    disable = flush = enable


def compiled(function: Function) -> Function:
    """Compile a function over arrays and numbers at its first call, or load it from disk.

    What it calls must be defined in the same folder or below: those sources are part of the key.
    """
    made: Any = numba.njit(cast("Any", function))
    sources = sources_of(Path(function.__code__.co_filename).parent)
    if sources is not None:
        made._cache = Stored(f"{function.__module__}.{function.__qualname__}\n{sources}")
    return cast("Function", made)


@cache
def sources_of(folder: Path) -> str | None:
    """The digest of all modules in a folder and below; None if they are not files, as in a zip."""
    paths = sorted(folder.rglob("*.py"))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest() if paths else None


@cache
def make_ready() -> None:
    """Load what numba loads at its first use; interrupted there, it would stay broken."""
    target: Any = cpu_target
    with uninterrupted():
        target.typing_context.refresh()
        target.target_context.refresh()


@cache
def versions() -> str:
    """What any compiled code depends on but its source: the versions and the processor."""
    target: Any = cpu_target.target_context
    machine = target.codegen().magic_tuple()
    python = sys.implementation.cache_tag  # a pickle holds its bytecode
    return repr((python, numba.__version__, llvmlite.__version__, np.__version__, machine))
