"""Compiling generated loops once a machine: in memory, and on disk for the processes to come."""

from __future__ import annotations

import hashlib
import math
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import llvmlite
import numba
import numpy as np
from numba import types

from eindecomp.kernels import functions, intrinsics
from eindecomp.kernels import machine_code as linking
from eindecomp.kernels.assemble import assemble
from eindecomp.kernels.cache import load, store
from eindecomp.kernels.emit import caster
from eindecomp.kernels.generate import source_of
from eindecomp.kernels.machine_code import link, machine_code
from eindecomp.kernels.numbers import Unsupported
from eindecomp.kernels.stored import Stored
from eindecomp.lang.dtypes import LOW_PRECISION, dtype, type_names

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

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


def compile_source(
    source: str, description: str, names: Mapping[str, Any] | None = None
) -> Callable[[int], None]:
    """The same for a text of our own that defines `kernel`, a function of one address.

    `names` are further functions that it calls; a name stands for one function only.
    """
    with _lock:
        function = _compiled.get(source)
        if function is None:
            function = _compiled[source] = _compile(source, description, names or {})
        return function


def _compile(source: str, description: str, names: Mapping[str, Any]) -> Callable[[int], None]:
    key = versions() + source
    name = f"kernel_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    # Anything may be wrong with a file; whatever it is, compiling mends it.
    with suppress(Exception):
        if (code := load(key)) is not None:
            return link(code, name)
    start = perf_counter()
    scope = {**_namespace(), **names, "__name__": __name__}
    try:
        code = machine_code(assemble(source, name, scope))
        function, loaded = link(code, name), False
        store(key, code)
    except Unsupported:
        function, loaded = _compile_by_numba(source, scope)
    if not loaded and (heard := _heard.get()) is not None:
        heard.append((description, start, perf_counter()))
    return function


def _compile_by_numba(source: str, scope: dict[str, Any]) -> tuple[Callable[[int], None], bool]:
    """Kernels of more than plain numbers, complex ones, say; and whether it was on disk."""
    # The text is our own, made of numbers and fixed names only.
    exec(compile(source, "<eindecomp kernel>", "exec"), scope)  # noqa: S102
    function: Any = numba.njit(nogil=True, error_model="numpy")(scope["kernel"])
    function._cache = stored = Stored(versions() + source)
    function.compile(_SIGNATURE)
    function.disable_compile()
    return function, stored.loaded


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
def versions() -> str:
    """Everything but the source that compiled code depends on."""
    code = [path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return repr((llvmlite.__version__, numba.__version__, linking.processor(), code))
