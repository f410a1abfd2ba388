"""The BLAS that products call: MKL where it lies beside this Python, otherwise NumPy's."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
# How builds name Fortran's functions: with 32-bit integers, then with 64-bit ones.
_SPELLINGS = {"{}_": 2**31 - 1, "scipy_{}_": 2**31 - 1, "{}_64_": 2**62, "scipy_{}_64_": 2**62}
_SEQUENTIAL = 1  # MKL's number for a layer without threads


@dataclass(frozen=True, slots=True)
class BlasLibrary:
    """One BLAS: where its functions are, and the largest size they take."""

    name: str
    matrices: Mapping[str, int]
    """Products of two matrices, by type."""
    vectors: Mapping[str, int]
    """Products of a matrix and a vector, by type."""
    largest: int


@cache
def blas_library() -> BlasLibrary:
    """The library that products call: MKL, or the newest of the others."""
    known = [library for pool in pools() if (library := _read(pool.info())) is not None]
    if not known:
        return _scipy()
    return max(known, key=lambda library: (library.name.startswith("mkl"), library.name))


@cache
def pools() -> list[Any]:
    """What sets the threads of each BLAS that may be called.

    How many OpenMP starts is a setting of each thread that calls: a library that uses it would
    start some for every one of ours. It is called only where there is no other.
    """
    _load_mkl()
    selected: Any = controller().select(user_api="blas")
    loaded: list[Any] = selected.lib_controllers
    return [pool for pool in loaded if _layer(pool) != "openmp"] or loaded


def _layer(pool: Any) -> str:
    return getattr(pool, "threading_layer", "")


def _read(info: Mapping[str, Any]) -> BlasLibrary | None:
    with suppress(OSError):
        opened = ctypes.CDLL(info["filepath"])
        for spelling, largest in _SPELLINGS.items():
            with suppress(AttributeError):

                def find(name: str, spelling: str = spelling) -> int:
                    function = getattr(opened, spelling.format(name))
                    return ctypes.cast(function, ctypes.c_void_p).value or 0

                name = f"{info['internal_api']} {info['version']}"
                return _library(name, find, largest)
    return None


def _scipy() -> BlasLibrary:
    """SciPy's BLAS by the addresses it exports, where libraries cannot be searched."""
    offered: Any = import_module("scipy.linalg.cython_blas")  # a compiled module without types
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    title = ctypes.pythonapi.PyCapsule_GetName
    title.restype, title.argtypes = ctypes.c_char_p, [ctypes.py_object]

    def find(name: str) -> int:
        capsule = offered.__pyx_capi__[name]
        return pointer(capsule, title(capsule))

    return _library("scipy", find, 2**31 - 1)


def _library(name: str, find: Callable[[str], int], largest: int) -> BlasLibrary:
    matrices, vectors = (
        {dtype: find(letter + kind) for dtype, letter in _LETTERS.items()}
        for kind in ("gemm", "gemv")
    )
    return BlasLibrary(name, matrices, vectors, largest)


def _load_mkl() -> None:
    """MKL, if it is installed beside this Python, with no threads of its own."""
    for path in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*")):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(str(path)).MKL_Set_Threading_Layer(_SEQUENTIAL)
            return


@cache
def controller() -> ThreadpoolController:
    """Lists the loaded libraries and sets how many threads each may use."""
    import_module("scipy.linalg.cython_blas")  # what is loaded later is not seen
    return ThreadpoolController()
