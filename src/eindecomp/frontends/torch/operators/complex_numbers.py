"""Complex numbers, made of pairs of real ones and taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.torch.operators.written import register_maps
from eindecomp.frontends.torch.registry import operator

if TYPE_CHECKING:
    from eindecomp.frontends.torch.registry import Operation
    from eindecomp.frontends.views import View

_PAIR = "x + y * complex(0.0, 1.0)"

register_maps({"real": "real(x)", "imag": "imag(x)"})
register_maps(dict.fromkeys(("conj", "_conj", "_conj_physical", "conj_physical"), "conj(x)"))
register_maps(dict.fromkeys(("resolve_conj", "resolve_neg"), "x"))


@operator("aten.complex")
def from_parts(op: Operation, real: View, imag: View) -> View:
    """A number of its real and its imaginary part."""
    return op.trace.map(_PAIR, real, imag, dtype=op.dtype)


@operator("aten.polar")
def polar(op: Operation, abs_: View, angle: View) -> View:
    """A number of its absolute value and its angle."""
    turned = "x * cos(y) + x * sin(y) * complex(0.0, 1.0)"
    return op.trace.map(turned, abs_, angle, dtype=op.dtype)


@operator("aten.view_as_complex", "aten.view_as_complex_copy")
def as_complex(op: Operation, x: View) -> View:
    """Numbers of pairs along the last dimension."""
    last = len(x.dims) - 1
    return from_parts(op, op.trace.index(x, last, 0), op.trace.index(x, last, 1))


@operator("aten.view_as_real", "aten.view_as_real_copy")
def as_real(op: Operation, x: View) -> View:
    """Both parts of numbers along a new last dimension."""
    parts = [op.trace.map(f"{part}(x)", x, dtype=op.dtype) for part in ("real", "imag")]
    last = len(x.dims)
    return op.trace.concat([op.trace.unsqueeze(part, last) for part in parts], last)
