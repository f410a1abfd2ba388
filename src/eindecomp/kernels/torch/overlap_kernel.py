"""What a Triton kernel begins with that is launched while the one before it ends."""
# pyright: basic
# ruff: noqa: N803

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def take_turn(OVERLAP: tl.constexpr):
    """Wait until all that came before is done, and let the next kernel be launched.

    In this order, so that a kernel finds done whatever came before the one before it: those that
    Inductor writes wait only for that one.
    """
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
