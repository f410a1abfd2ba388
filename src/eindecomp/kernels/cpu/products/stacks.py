"""Kernels that do the same to every pair of matrices in two stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = """
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


def over_stack(body: Sequence[str], array: int) -> str:
    """The source of a kernel whose `body` multiplies `first` by `second` into `result`.

    The addresses of the three are in slots from `array` on; then there is the number of loops over
    the stack, and for each of them its size and the byte steps of the three.
    """
    lines = ["        " + line for line in body]
    return _HEAD.format(array=array, count=array + 3) + "\n".join(lines) + "\n"
