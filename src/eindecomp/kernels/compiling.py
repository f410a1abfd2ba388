"""Compiling generated loops once a machine: in memory, and on disk for the processes to come.

What is stored is native code, so it is trusted only in a folder that is the user's own and that
nobody else can write to, and only whole: each file begins with the digest of the rest. A file that
is missing, damaged or from other versions is made anew, and a folder that cannot be written to
costs nothing but the next process's time.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import stat
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import llvmlite
import numba
import numpy as np
from numba import types
from numba.core import serialize
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target

from eindecomp.kernels import functions, intrinsics
from eindecomp.kernels.emit import caster
from eindecomp.kernels.generate import source_of
from eindecomp.lang.dtypes import LOW_PRECISION, dtype, type_names

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from eindecomp.kernels.nest import Nest

Compilation = tuple[str, float, float]
"""What was compiled, and from when until when, by `perf_counter`."""

_heard: ContextVar[list[Compilation] | None] = ContextVar("heard", default=None)
_SIGNATURE = types.void(types.int64)
_lock = threading.Lock()
_compiled: dict[str, Callable[[int], None]] = {}


@contextmanager
def hearing() -> Generator[list[Compilation]]:
    """What this thread compiles meanwhile, except where something further in hears it."""
    found: list[Compilation] = []
    token = _heard.set(found)
    try:
        yield found
    finally:
        _heard.reset(token)


def compile_nest(nest: Nest, description: str) -> Callable[[int], None]:
    """The function of a nest: from memory, from disk, or compiled now."""
    return compile_source(source_of(nest), description)


def compile_source(source: str, description: str) -> Callable[[int], None]:
    """The same for a text of our own that defines `kernel`, a function of one address."""
    with _lock:
        function = _compiled.get(source)
        if function is None:
            function = _compiled[source] = _compile(source, description)
        return function


def _compile(source: str, description: str) -> Callable[[int], None]:
    scope = {**_namespace(), "__name__": __name__}
    # The text is our own, made of numbers and fixed names only.
    exec(compile(source, "<eindecomp kernel>", "exec"), scope)  # noqa: S102
    function: Any = numba.njit(nogil=True, error_model="numpy")(cast("Any", scope["kernel"]))
    stored = _Stored(_path_of(source))
    function._cache = stored
    start = perf_counter()
    function.compile(_SIGNATURE)
    if not stored.loaded and (heard := _heard.get()) is not None:
        heard.append((description, start, perf_counter()))
    function.disable_compile()
    return function


@cache
def _namespace() -> dict[str, Any]:
    """The names that generated source may use."""
    found: dict[str, Any] = {"np": np, "math": math, "inf": math.inf, "nan": math.nan}
    for name in type_names:
        found[f"load_{name}"] = intrinsics.make_load(name, in_bytes=False, apart=True)
        found[f"load_bytes_{name}"] = intrinsics.make_load(name, in_bytes=True, apart=True)
        found[f"reload_{name}"] = intrinsics.make_load(name, in_bytes=False, apart=False)
        found[f"reload_bytes_{name}"] = intrinsics.make_load(name, in_bytes=True, apart=False)
        found[f"store_{name}"] = intrinsics.make_store(name, in_bytes=False)
        found[f"store_bytes_{name}"] = intrinsics.make_store(name, in_bytes=True)
        if dtype(name) not in LOW_PRECISION:
            found[caster(dtype(name))] = getattr(types, "boolean" if name == "bool" else name)
    for module in (intrinsics, functions):
        found |= {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value) and not name.startswith("make_")
        }
    return found


class _Stored:
    """One compiled function's place on disk, as a cache of numba's dispatchers."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.loaded = False
        self.cache_path = None if path is None else str(path.parent)

    def load_overload(self, _: Any, target: Any) -> CompileResult | None:
        """The function from disk, or None."""
        if self.path is None:
            return None
        # Anything may be wrong with a file; whatever it is, compiling mends it.
        with suppress(Exception):
            with self.path.open("rb") as opened:
                # The file that is read, not only the folder: another could have been put there.
                if not _is_ours(os.fstat(opened.fileno())):
                    return None
                data = opened.read()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                return None
            target.refresh()
            result: Any = CompileResult
            found = result._rebuild(target, *pickle.loads(data[32:]))  # noqa: S301
            self.loaded = True
            return found
        return None

    def save_overload(self, _: Any, result: Any) -> None:
        """Write the function to disk: all of it or nothing, whoever else writes it too."""
        if self.path is None:
            return
        with suppress(Exception):
            data: bytes = serialize.dumps(result._reduce())
            with tempfile.TemporaryDirectory(dir=self.path.parent) as folder:
                fresh = Path(folder) / self.path.name
                fresh.touch(0o600)
                fresh.write_bytes(hashlib.sha256(data).digest() + data)
                fresh.replace(self.path)

    def enable(self) -> None:
        """Nothing to do: numba asks for it."""

    disable = flush = enable


def _path_of(source: str) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    return folder / hashlib.sha256((_versions() + source).encode()).hexdigest()


@cache
def _versions() -> str:
    """Everything but the source that compiled code depends on."""
    files = (__file__, functions.__file__, intrinsics.__file__)
    code = [Path(str(file)).read_text() for file in files]
    target: Any = cpu_target.target_context
    machine = target.codegen().magic_tuple()
    python = sys.implementation.cache_tag  # a pickle holds its bytecode
    return repr((python, numba.__version__, llvmlite.__version__, np.__version__, machine, code))


def cache_folder() -> Path | None:
    """Where compiled functions are kept; None where no folder can be trusted and written to."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
        folder = root / "eindecomp" / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError):
        return None
    return folder if _is_ours(found) and stat.S_ISDIR(found.st_mode) else None


def _is_ours(found: os.stat_result) -> bool:
    """Whether something is the user's own and nobody else can write to it."""
    own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return own and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
