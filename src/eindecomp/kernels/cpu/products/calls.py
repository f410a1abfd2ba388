"""Matrix products as compiled calls: BLAS for each pair of two stacks, or a loop for few rows.

NumPy's `matmul` also calls BLAS for each pair, but sets up every array anew, and needs views that
take longer to make than a small product takes to compute. A product with a handful of rows takes as
long as reading the long matrix does. BLAS first copies that into an order of its own, which pays
off only for many rows; the loop reads it where it lies. Low precision is widened on the way, and
rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import compile_source, has_avx512, vector_registers
from eindecomp.kernels.cpu.loops.launch import LoopsCall, Pack
from eindecomp.kernels.cpu.products.blas_libraries import BlasLibrary
from eindecomp.lang.dtypes import LOW_PRECISION, DType, widen


@dataclass(frozen=True, slots=True)
class MatrixSteps:
    """A stack's matrices: byte steps along rows and columns."""

    row: int
    column: int

    @property
    def turned(self) -> MatrixSteps:
        """The transposed matrices."""
        return MatrixSteps(self.column, self.row)


@dataclass(frozen=True, slots=True)
class StackProduct:
    """Stacks of products of m × k by k × n matrices, and where their numbers are."""

    types: tuple[DType, DType, DType]
    """Of the first input, the second and the result."""
    shape: tuple[int, int, int]
    """m, n and k."""
    sides: tuple[MatrixSteps, MatrixSteps, MatrixSteps]
    loops: tuple[tuple[int, int, int, int], ...] = ()
    """Loops over the stack: the size, and the byte step of either input and of the result."""
    packs: tuple[Pack, ...] = ()
    """Arrays that are computed through copies; sides and steps are those of the copies."""


_OVER_STACK = """
def kernel(at):
    loops = load_int64(at, {count})
    total = 1
    for loop in range(loops):
        total *= load_int64(at, {count} + 1 + 4 * loop)
    for place in range(total):
        rest = place
        first, second = load_int64(at, {array}), load_int64(at, {array} + 1)
        result = load_int64(at, {array} + 2)
        for loop in range(loops - 1, -1, -1):
            slot = {count} + 1 + 4 * loop
            size = load_int64(at, slot)
            k = rest % size
            rest //= size
            first += k * load_int64(at, slot + 1)
            second += k * load_int64(at, slot + 2)
            result += k * load_int64(at, slot + 3)
"""


def call_over_stack(
    product: StackProduct,
    head: Sequence[int],
    body: Sequence[str],
    *,
    turned: bool,
    scratch: int = 0,
) -> LoopsCall:
    """A call whose `body` multiplies `first` by `second` into `result`, for all of a stack.

    It finds the numbers of `head` in the first slots at `at`. If it is `turned`, `first` is the
    product's second input. It may use `scratch` bytes of memory, whose address follows the loops.
    """
    start = len(head)
    lines = ["        " + line for line in body]
    source = _OVER_STACK.format(array=start, count=start + 3) + "\n".join(lines) + "\n"
    integers = [*head, 0, 0, 0, len(product.loops)]
    for size, x, y, z in product.loops:
        integers += [size, *((y, x, z) if turned else (x, y, z))]
    inputs = [start + 1, start] if turned else [start, start + 1]
    addresses = [*inputs, start + 2]
    function = compile_source(source, "stacks of matrix products")
    filled = np.array([*integers, 0], np.int64)
    return LoopsCall(function, filled, addresses, scratch, product.packs)


def blas_call(product: StackProduct, library: BlasLibrary) -> LoopsCall | None:
    """A call for a product of one type; None if its sides are too long for the library.

    Every matrix has neighbours along its rows or columns.
    """
    (m, n, k), (x, y, z) = product.shape, product.sides
    dtype = product.types[2]
    if min(m, n) == 1:
        return _vector_call(product, library)
    # Fortran's matrices have neighbours along columns: ours with neighbours along rows are
    # transposed for it, and zᵀ = yᵀ·xᵀ.
    turned = z.column == dtype.itemsize
    if turned:
        m, n, x, y, z = n, m, y.turned, x.turned, z.turned
    letters, far = zip(*(_turn(side, dtype.itemsize) for side in (x, y)), strict=True)
    steps = [step // dtype.itemsize for step in (*far, z.column)]
    if max(m, n, k, *steps) > library.largest:
        return None
    head = [library.matrices[dtype.name], *letters, m, n, k, *_factors(dtype), *steps]
    body = ["call_gemm(at, first, second, result)"]
    return call_over_stack(product, head, body, turned=turned)


def _vector_call(product: StackProduct, library: BlasLibrary) -> LoopsCall | None:
    """The same for a product of one row or column: `first` is the vector."""
    (m, n, k), (x, y, z) = product.shape, product.sides
    dtype, turned = product.types[2], m > 1
    if turned:
        n, x, y, z = m, y.turned, x.turned, z.turned
    # The letter as if the matrix were the first, whose neighbours are along its rows or columns.
    letter, far = _turn(y.turned, dtype.itemsize)
    sizes = (n, k) if letter == ord("N") else (k, n)
    steps = [step // dtype.itemsize for step in (far, x.column, z.column)]
    if max(*sizes, *steps) > library.largest:
        return None
    head = [library.vectors[dtype.name], letter, *sizes, *_factors(dtype), *steps]
    body = ["call_gemv(at, first, second, result)"]
    return call_over_stack(product, head, body, turned=turned)


def _factors(of: DType) -> tuple[int, ...]:
    """Alpha, which is 1, and beta, which is 0, in two slots each."""
    low, high = np.frombuffer(np.ones(1, of).tobytes().ljust(16, b"\0"), np.int64)
    return int(low), int(high), 0, 0


def _turn(side: MatrixSteps, itemsize: int) -> tuple[int, int]:
    """Whether Fortran is to transpose a matrix, as its letter, and the step between columns."""
    return (ord("N"), side.column) if side.row == itemsize else (ord("T"), side.row)


_MOST_ROWS, _MOST_LOW = 16, 32
"""The most rows for which BLAS takes longer, and of low precision, which BLAS does not know."""
_ROWS = 4
"""Rows that are computed at once."""
_TERMS = 8
"""The most rows of the long matrix that are read at once."""
_WIDTH = 512
"""Columns of sums that stay in the nearest cache while all rows of the long matrix are read."""
_SCRATCH = "load_int64(at, 13 + 4 * loops)"
"""The address of scratch memory: after the loops over the stack."""
_UNPACK = (
    "rows, columns, depth = load_int64(at, 0), load_int64(at, 1), load_int64(at, 2)",
    "x_row, x_column = load_int64(at, 3), load_int64(at, 4)",
    "y_row, y_column = load_int64(at, 5), load_int64(at, 6)",
    "z_row, z_column = load_int64(at, 7), load_int64(at, 8)",
)


def few_rows_call(product: StackProduct) -> LoopsCall | None:
    """A call for a product of few rows or columns; None for others, and for other layouts.

    The numbers that are summed must be neighbours in both inputs, or else the columns of the long
    matrix and of the result.
    """
    (m, n, k), (x, y, z) = product.shape, product.sides
    first, second, result = product.types
    low = any(of in LOW_PRECISION for of in product.types)
    rows = min(m, n)
    if result.kind == "c" or (rows == 1 and not low):
        return None
    turned = m > n
    if turned:
        m, n, x, y, z = n, m, y.turned, x.turned, z.turned
        first, second = second, first
    scratch = 0
    if x.column == first.itemsize and y.row == second.itemsize:
        if rows > (_MOST_LOW if low else _MOST_ROWS):
            return None
        body = _by_sums(m, (first, second, result))
    elif y.column == second.itemsize and z.column == result.itemsize and not low:
        if rows > (_MOST_ROWS if has_avx512() else _MOST_ROWS // 2):
            return None
        body = _by_columns(m, result)
        scratch = m * _WIDTH * result.itemsize
    else:
        return None
    head = [m, n, k, x.row, x.column, y.row, y.column, z.row, z.column]
    return call_over_stack(product, head, body, turned=turned, scratch=scratch)


def _by_columns(rows: int, of: DType) -> list[str]:
    """Add multiples of several rows of the long matrix to sums, some columns at a time.

    The sums are beside the result: where its rows are a power of two apart, a cache does not hold
    several of them at once.
    """
    name = of.name
    lines = [*_UNPACK, f"sums = {_SCRATCH}", "start = 0", "while start < columns:"]
    lines += [f"    width = min(columns - start, {_WIDTH})", "    for row in range(rows):"]
    lines += ["        for c in range(width):"]
    lines += [f"            store_{name}(sums, row * {_WIDTH} + c, {_zero(of)})", "    k = 0"]
    at_once = min(rows, _ROWS)
    # AVX-512 repeats a factor as it reads it; elsewhere each takes a register.
    factors = 32 if has_avx512() else 16
    for terms in dict.fromkeys((min(factors // at_once, _TERMS), 1)):
        lines += [f"    while k + {terms} <= depth:", "        row = 0"]
        for some in dict.fromkeys((at_once, 1)):
            block = _multiples(some, terms, of)
            lines += [f"        while row + {some} <= rows:", *(" " * 12 + line for line in block)]
        lines += [f"        k += {terms}"]
    lines += ["    for row in range(rows):"]
    lines += [f"        z = result + row * z_row + start * {of.itemsize}"]
    lines += ["        for c in range(width):"]
    lines += [f"            store_{name}(z, c, reload_{name}(sums, row * {_WIDTH} + c))"]
    return [*lines, f"    start += {_WIDTH}"]


def _zero(of: DType) -> str:
    return "to_f8(0.0)" if of.itemsize == 8 else "to_f4(0.0)"


def _multiples(rows: int, terms: int, of: DType) -> list[str]:
    """Add the same rows of the long matrix to the sums of some rows of the result."""
    name, item = of.name, of.itemsize
    both = [(i, j) for i in range(rows) for j in range(terms)]
    lines = [f"y{j} = second + (k + {j}) * y_row + start * {item}" for j in range(terms)]
    lines += [f"z{i} = sums + (row + {i}) * {item * _WIDTH}" for i in range(rows)]
    place = "first + (row + {}) * x_row + (k + {}) * x_column, 0"
    lines += [f"a{i}_{j} = load_{name}({place.format(i, j)})" for i, j in both]
    lines += ["for c in range(width):"]
    lines += [f"    b{j} = load_{name}(y{j}, c)" for j in range(terms)]
    lines += [f"    s{i}_0 = reload_{name}(z{i}, c)" for i in range(rows)]
    lines += [f"    s{i}_{j + 1} = sum_product(a{i}_{j}, b{j}, s{i}_{j})" for i, j in both]
    lines += [f"    store_{name}(z{i}, c, s{i}_{terms})" for i in range(rows)]
    return [*lines, f"row += {rows}"]


def _by_sums(few: int, types: tuple[DType, DType, DType]) -> list[str]:
    """Sum the products of a few rows by a few columns at a time."""
    lines = [*_UNPACK, "column = 0"]
    # With their operands, the sums fit the registers.
    for columns in (6 if vector_registers() == 32 else 3, 1):
        lines += [f"while column + {columns} <= columns:", "    row = 0"]
        for rows in dict.fromkeys((min(few, _ROWS), 1)):
            block = _block(rows, columns, types)
            lines += [f"    while row + {rows} <= rows:", *("        " + line for line in block)]
        lines += [f"    column += {columns}"]
    return lines


def _block(rows: int, columns: int, types: tuple[DType, DType, DType]) -> list[str]:
    """Sum a few rows by a few columns; terms are added in any order, as lanes of vectors do."""
    first, second, result = (of.name for of in types)
    both = [(i, j) for i in range(rows) for j in range(columns)]
    lines = [f"x{i} = first + (row + {i}) * x_row" for i in range(rows)]
    lines += [f"y{j} = second + (column + {j}) * y_column" for j in range(columns)]
    lines += [f"s{i}_{j} = {_zero(widen(types[2]))}" for i, j in both]
    lines += ["for k in range(depth):"]
    lines += [f"    a{i} = load_{first}(x{i}, k)" for i in range(rows)]
    lines += [f"    b{j} = load_{second}(y{j}, k)" for j in range(columns)]
    lines += [f"    s{i}_{j} = sum_product(a{i}, b{j}, s{i}_{j})" for i, j in both]
    for i, j in both:
        place = f"result + (row + {i}) * z_row + (column + {j}) * z_column, 0"
        lines += [f"store_{result}({place}, s{i}_{j})"]
    return [*lines, f"row += {rows}"]
