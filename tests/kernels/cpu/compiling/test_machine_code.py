"""From the text of a module to a function."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

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


LOOP = """
define void @kernel(i64 %at) {
entry:
  %x = inttoptr i64 %at to ptr
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %p = getelementptr double, ptr %x, i64 %i
  %v = load double, ptr %p
  %w = fmul double %v, 3.25
  store double %w, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 1000
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
STATUS = Path("/proc/self/statm")


@pytest.mark.long
@pytest.mark.skipif(not STATUS.exists(), reason="tells a process's memory on Linux")
def test_compiling_keeps_no_memory():
    """Optimising passes that were not disposed of took 0.1 MB each time."""

    def pages() -> int:
        gc.collect()
        return int(STATUS.read_text().split()[1])

    for _ in range(10):
        machine_code(LOOP)
    before = pages()
    for _ in range(50):
        machine_code(LOOP)
    assert 4096 * (pages() - before) < 50 * 20_000
