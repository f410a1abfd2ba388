"""What a Triton kernel begins with that is launched while the one before it ends."""
# pyright: basic
# ruff: noqa: N803

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def take_turn(OVERLAP: tl.constexpr):
    """Let the next kernel be launched, and wait until all that came before is done."""
    if OVERLAP:
        gdc_launch_dependents()
        gdc_wait()
