"""From the text of a module to a function."""

from __future__ import annotations

import gc
from collections import OrderedDict
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.kernels.cpu.compiling import compile as compiling
from eindecomp.kernels.cpu.compiling.compile import machine_code
from eindecomp.kernels.cpu.einsum import einsum_kernel

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
    compiling._LINKER.function(machine_code(DIVISION), "divide")(words.ctypes.data)
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


SOURCE = "def kernel(at):\n    store_int64(at, 0, load_int64(at, 0) + {})\n"


def test_few_functions_are_kept_beside_those_in_use(monkeypatch):
    monkeypatch.setattr(compiling, "KEPT", 4)
    monkeypatch.setattr(compiling, "_compiled", OrderedDict())
    monkeypatch.setattr(compiling, "_LINKER", compiling._Linker())  # with no other test's
    number = np.zeros(1, np.int64)
    held = compiling.compile_source(SOURCE.format(10_000), "held")
    first = ref(compiling.compile_source(SOURCE.format(10_001), "dropped").memory)
    assert first() is not None
    for count in range(80):
        compiling.compile_source(SOURCE.format(20_000 + count), "others")(number.ctypes.data)
    assert len(compiling._compiled) == 4
    gc.collect()
    assert first() is not None, "it lies beside one that is held"
    held(number.ctypes.data)
    assert number[0] == sum(range(20_000, 20_080)) + 10_000
    del held
    gc.collect()
    assert first() is None


@pytest.mark.long
def test_what_calls_compiled_code_keeps_it(monkeypatch):
    """Contractions and repeated runs have addresses of functions, which are no references."""
    graph = ed.parse(
        "input A[i: 12, a: 5], B[a, j: 7, b: 4], C[b, k: 6]\n"
        "Z[i,j,k] <- sum A[i,a] * B[a,j,b] * C[b,k]\nY[i,j] <- max sin(Z[i,j,k]) + 1\noutput Y"
    )
    rng = np.random.default_rng(0)
    given = {v.name: rng.normal(size=v.shape).astype(v.dtype) for v in graph.inputs}
    wanted = ed.evaluate(graph, given)["Y"]
    monkeypatch.setattr(compiling, "KEPT", 1)
    with ed.compile(ed.plan(graph, 2)) as executable:
        for _ in range(4):
            np.testing.assert_allclose(executable(given)["Y"], wanted, rtol=1e-5, atol=1e-5)
            einsum_kernel.cache_clear()
            for count in range(40):
                compiling.compile_source(SOURCE.format(30_000 + count), "others")
            gc.collect()
