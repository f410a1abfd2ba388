"""The choice of matrices: as cheap as any order of the loops allows, found among few."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.kernels.cpu.products import gemm
from eindecomp.kernels.cpu.products.gemm import Gemm, Matrices, price
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.einsum import product as multiply
from eindecomp.lang.monoid import SUM

F4 = dtype("float32")


def prepared(inputs: tuple[Labels, Labels], output: Labels, sizes: dict[str, int]) -> Matrices:
    op = EinSum(inputs, output, multiply(2), SUM)
    first, second, out = (np.empty([sizes[k] for k in own], F4) for own in (*inputs, output))
    found = Gemm(op, (F4, F4), F4).arranged([first, second], out)
    assert found is not None
    return found


def cuts(loops: Labels) -> list[tuple[Labels, Labels]]:
    return [(order[:at], order[at:]) for order in permutations(loops) for at in range(len(loops))]


def cheapest(chosen: Matrices) -> float:
    """The least price of all orders of all classes of loops, outer ones left to the batch."""
    layout = chosen.layout
    x, y = (set(own) for own in layout.inputs)
    rows, columns = (tuple(k for k in layout.results if k in own) for own in (x - y, y - x))
    best = float("inf")
    for (m_loop, m), (n_loop, n), k in product(
        cuts(rows), cuts(columns), permutations(layout.aggregated)
    ):
        sides = zip(layout.arrays, ((m, k), (k, n), (m, n)), strict=True)
        first, second, result = (not gemm._fits(layout, own, a, b, 4) for own, (a, b) in sides)
        batch = tuple(label for label in layout.results if label in x & y) + m_loop + n_loop
        best = min(best, price(Matrices(layout, batch, m, n, k, (first, second, result))))
    return best


@given(st.data())
def test_no_order_is_cheaper(data: st.DataObject) -> None:
    batch, *classes = ("a", "bcd"[: data.draw(st.integers(1, 3))], "ef", "gh")
    sizes = {k: data.draw(st.sampled_from([4, 6, 16])) for k in "abcdefgh"}
    m, n, k = classes
    first, second, output = (
        tuple(data.draw(st.permutations(batch + own))) for own in (m + k, k + n, m + n)
    )
    chosen = prepared((first, second), output, sizes)
    assert price(chosen) == cheapest(chosen)


def test_many_loops_leave_few_choices() -> None:
    sizes = dict.fromkeys("abcdefghijkl", 2)
    found = prepared((tuple("aibjckdl"), tuple("ielfkgjh")), tuple("hagdcfbe"), sizes)
    classes = [(), tuple("abcd"), tuple("efgh"), tuple("ijkl")]
    assert {len(own) for own in found.layout.arrays} == {8}
    assert len([*gemm._candidates(found.layout, classes, [4, 4, 4])]) <= 512
