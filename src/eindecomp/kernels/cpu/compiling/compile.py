"""Compiling generated source once per machine: kept in memory, and on disk for later processes."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import llvmlite
import numba
import numpy as np
from numba import types

from eindecomp.kernels.cache import load, store
from eindecomp.kernels.compilations import note_compilation
from eindecomp.kernels.cpu.compiling import functions, intrinsics
from eindecomp.kernels.cpu.compiling import machine_code as linking
from eindecomp.kernels.cpu.compiling.assemble import assemble
from eindecomp.kernels.cpu.compiling.machine_code import link, machine_code
from eindecomp.kernels.cpu.compiling.numbers import Unsupported
from eindecomp.kernels.cpu.compiling.stored import Stored
from eindecomp.lang.dtypes import BOOL, LOW_PRECISION, dtype, type_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.lang.dtypes import DType

_SIGNATURE = types.void(types.int64)
_lock = threading.Lock()
_compiled: OrderedDict[str, Callable[[int], None]] = OrderedDict()
KEPT = 1024
"""How many functions are kept beside those in use; what comes again is on disk."""


def compile_source(source: str, description: str) -> Callable[[int], None]:
    """The function of a text that defines `kernel`: from memory, from disk, or compiled now.

    It takes one address.
    """
    with _lock:
        function = _compiled.pop(source, None) or _compile(source, description)
        _compiled[source] = function
        if len(_compiled) > KEPT:
            _compiled.popitem(last=False)
        return function


def _compile(source: str, description: str) -> Callable[[int], None]:
    key = versions() + source
    name = f"kernel_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    # Whatever is wrong with the file, compiling again repairs it.
    with suppress(Exception):
        if (code := load(key)) is not None:
            return link(code, name)
    start = perf_counter()
    scope = {**_namespace(), "__name__": __name__}
    try:
        code = machine_code(assemble(source, name, scope))
        function, loaded = link(code, name), False
        store(key, code)
    except Unsupported:
        function, loaded = _compile_by_numba(source, scope)
    if not loaded:
        note_compilation(description, start, perf_counter())
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


def caster(of: DType) -> str:
    """The name that the conversion to a type has in generated source, such as to_f4."""
    return f"to_{suffix(of)}"


def suffix(of: DType) -> str:
    """How the names of functions of a type end in generated source: f4, u1, b1."""
    return "b1" if of == BOOL else f"{of.kind}{of.itemsize}"


@cache
def versions() -> str:
    """Everything but the source that compiled code depends on."""
    code = [path.read_text("utf-8") for path in sorted(Path(__file__).parents[1].rglob("*.py"))]
    return repr((llvmlite.__version__, numba.__version__, linking.processor(), code))
