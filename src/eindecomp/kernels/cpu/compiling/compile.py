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

from eindecomp.kernels.cache import load, store
from eindecomp.kernels.compilations import note_compilation
from eindecomp.kernels.cpu.compiling import functions, intrinsics
from eindecomp.kernels.cpu.compiling import machine_code as linking
from eindecomp.kernels.cpu.compiling.assemble import assemble
from eindecomp.kernels.cpu.compiling.machine_code import link, machine_code
from eindecomp.lang.dtypes import BOOL, LOW_PRECISION, dtype, type_names

if TYPE_CHECKING:
    from eindecomp.kernels.cpu.compiling.machine_code import CompiledFunction
    from eindecomp.lang.dtypes import DType

_lock = threading.Lock()
_compiled: OrderedDict[str, CompiledFunction] = OrderedDict()
KEPT = 1024
"""How many functions are kept beside those in use; what comes again is on disk."""


def compile_source(source: str, description: str) -> CompiledFunction:
    """The function of a text that defines `kernel`: from memory, from disk, or compiled now.

    It takes one address.
    """
    with _lock:
        function = _compiled.pop(source, None) or _compile(source, description)
        _compiled[source] = function
        if len(_compiled) > KEPT:
            _compiled.popitem(last=False)
        return function


def _compile(source: str, description: str) -> CompiledFunction:
    key = versions() + source
    name = f"kernel_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    # Whatever is wrong with the file, compiling again repairs it.
    with suppress(Exception):
        if (code := load(key)) is not None:
            return link(code, name)
    start = perf_counter()
    code = machine_code(assemble(source, name, _namespace()))
    store(key, code)
    note_compilation(description, start, perf_counter())
    return link(code, name)


@cache
def _namespace() -> dict[str, Any]:
    """The names that generated source may use."""
    found: dict[str, Any] = {"inf": math.inf, "nan": math.nan, **intrinsics.memory_functions()}
    types = (dtype(name) for name in type_names)
    found |= {caster(of): of for of in types if of not in LOW_PRECISION}
    for module in (intrinsics, functions):
        found |= {name: value for name, value in vars(module).items() if not name.startswith("_")}
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
    return repr((llvmlite.__version__, linking.processor(), code))
