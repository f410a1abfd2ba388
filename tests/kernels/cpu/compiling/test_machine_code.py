"""From the text of a module to a function."""

from __future__ import annotations

import numpy as np

from eindecomp.kernels.cpu.compiling.machine_code import link, machine_code

DIVISION = """
define void @divide(i64 %at) {
  %one = inttoptr i64 %at to ptr
  %other = getelementptr i128, ptr %one, i64 1
  %x = load i128, ptr %one, align 8
  %y = load i128, ptr %other, align 8
  %quotient = udiv i128 %x, %y
  store i128 %quotient, ptr %one, align 8
  ret void
}
"""


def test_divisions_of_128_bits_are_found():
    """The optimiser counts some loops with them; without them, LLVM ends the process."""
    words = np.array([0, 6, 0, 3], dtype=np.uint64)
    link(machine_code(DIVISION), "divide")(words.ctypes.data)
    assert words.tolist() == [2, 0, 0, 3]
