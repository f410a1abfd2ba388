"""Compiling generated source once per machine: kept in memory, and on disk for later processes.

LLVM makes machine code of the text of a module, and functions of machine code.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import llvmlite
import llvmlite.binding
from llvmlite.binding import newpassmanagers

from eindecomp.kernels.cache import load, note_compilation, store
from eindecomp.kernels.cpu.compiling import functions, intrinsics
from eindecomp.kernels.cpu.compiling.assemble import assemble
from eindecomp.lang.dtypes import BOOL, LOW_PRECISION, DType, dtype, type_names

llvm: Any = llvmlite.binding
NewPassManager: Any = newpassmanagers.NewPassManager


class CompiledFunction(Protocol):
    """A function of compiled code, of one address, which lets other threads run while it does."""

    address: int
    """Where its code is, for other compiled code that calls it."""
    memory: Any
    """What has the code, which lasts as long as the function."""

    def __call__(self, argument: int, /) -> None:
        """Run it."""


_lock = threading.Lock()
_compiled: OrderedDict[str, CompiledFunction] = OrderedDict()
KEPT = 1024
"""How many functions are kept besides those in use; the others are still on disk."""


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
            return _LINKER.function(code, name)
    start = perf_counter()
    code = machine_code(assemble(source, name, _namespace()))
    store(key, code)
    note_compilation(description, start, perf_counter())
    return _LINKER.function(code, name)


@cache
def _namespace() -> dict[str, Any]:
    """The names that generated source may use."""
    names: dict[str, Any] = {"inf": math.inf, "nan": math.nan, **intrinsics.memory_functions()}
    types = (dtype(name) for name in type_names)
    names |= {caster(of): of for of in types if of not in LOW_PRECISION}
    for module in (intrinsics, functions):
        names |= {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return names


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
    return repr((llvmlite.__version__, processor(), code))


# LLVM


@cache
def processor() -> tuple[str, str, str]:
    """What code is compiled for: the system, the processor, and all that it can do."""
    features = llvm.get_host_cpu_features().flatten()
    if _AVX512 in features:
        # LLVM takes half a vector at a time, for fear of slowing the clock down as it once did.
        features += ",-prefer-256-bit"
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features


_AVX512 = "+avx512f"


def has_avx512() -> bool:
    """Whether the processor has 32 vectors of 64 bytes."""
    return _AVX512 in processor()[2]


def vector_registers() -> int:
    """How many vectors the processor's registers hold."""
    return 32 if has_avx512() or processor()[0].startswith(("aarch64", "arm64")) else 16


def _target_machine() -> Any:
    _, cpu, features = processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


@cache
def _optimiser() -> Any:
    """What compiles modules."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    with suppress(RuntimeError):
        # It divides 128 bits, with which the optimiser counts some loops.
        llvm.load_library_permanently("libgcc_s.so.1")
    llvm.add_symbol(intrinsics.REFUSE, ctypes.cast(_refuse, ctypes.c_void_p).value)
    return _target_machine()


class _Linker:
    """Links functions, some at a time in memory that they share and that goes with the last one."""

    def __init__(self) -> None:
        self._engine, self._left = None, 0

    def function(self, code: bytes, name: str) -> CompiledFunction:
        if not self._left:
            _optimiser()
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
            self._left = _TOGETHER
        engine: Any = self._engine
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._left -= 1
        address = engine.get_function_address(name)
        if not address:
            raise ValueError(f"an object file without {name}")
        function: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)
        function.address, function.memory = address, engine
        return function


_LINKER = _Linker()
_TOGETHER = 32  # functions: each alone would take four times the memory


REFUSED: list[str] = []
"""Why kernels have refused to go on; whoever called one raises it."""


@ctypes.CFUNCTYPE(None)
def _refuse() -> None:
    REFUSED.append("Integers to negative integer powers are not allowed.")


def check_refusals() -> None:
    """Raise what a kernel that has just ended refused, if it did."""
    if REFUSED:
        reason = REFUSED[0]
        REFUSED.clear()
        raise ValueError(reason)


def machine_code(text: str) -> bytes:
    """Optimise a module and compile it, as an object file."""
    machine = _optimiser()
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    try:
        passes.run(module, builder)
    finally:
        # llvmlite would never do so: 0.1 MB for each kernel.
        NewPassManager._dispose(passes)
        passes.detach()
    return machine.emit_object(module)
