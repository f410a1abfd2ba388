"""From a generated source to a Triton kernel.

Triton reads a function's source when it is made; `linecache` holds ours. It keeps what it compiles
on disk by itself.
"""

from __future__ import annotations

import hashlib
import linecache
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton import knobs

_FUNCTIONS = Path(__file__).with_name("functions.py")


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs kernels now, on the CPU: `TRITON_INTERPRET=1`."""
    return bool(knobs.runtime.interpret)


def compiled(source: str) -> Any:
    """The function `kernel` of a generated source, for the compiler or the interpreter."""
    return _compiled(source, is_interpreted())


@cache
def _compiled(source: str, interpreted: bool) -> Any:
    name = f"<eindecomp kernel {digest(source)}{' interpreted' if interpreted else ''}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {
        "__name__": "eindecomp.generated",
        "triton": triton,
        "tl": tl,
        **load_functions(interpreted),
    }
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - numbers and names of our making
    return scope["kernel"]


def digest(source: str) -> str:
    """What tells sources apart."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@cache
def load_functions(interpreted: bool) -> dict[str, Any]:
    """The functions of `functions.py`, made for the compiler or for the interpreter."""
    name = f"eindecomp_triton_functions{'_interpreted' if interpreted else ''}"
    spec = spec_from_file_location(name, _FUNCTIONS)
    assert spec is not None  # noqa: S101
    assert spec.loader is not None  # noqa: S101
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    namespace: dict[str, Any] = vars(module)
    made: type[object] = namespace["exp"].__class__
    return {name: value for name, value in namespace.items() if isinstance(value, made)}
