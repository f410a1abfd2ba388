"""Compiling generated loops once a machine: in memory, and on disk for the processes to come."""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numba
import numpy as np
from numba import types

from eindecomp.kernels import functions, intrinsics
from eindecomp.kernels.emit import caster
from eindecomp.kernels.generate import source_of
from eindecomp.kernels.stored import Stored
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
    stored = Stored(_versions() + source)
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


@cache
def _versions() -> str:
    """Our own code that compiled functions depend on beside their source."""
    files = (__file__, functions.__file__, intrinsics.__file__)
    return repr([Path(str(file)).read_text() for file in files])
