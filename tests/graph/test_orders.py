"""Orders of contractions: how many there are, what they take, and which are alike."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.graph.orders import Contraction, coarser, one_of_each, order_of, path_of, steps_of
from eindecomp.graph.work import least_operations, operations, tile_operations


def contraction(spec: str, sizes: dict[str, int], *, paired: bool = True) -> Contraction:
    left, _, output = spec.partition("->")
    return Contraction(tuple(map(tuple, left.split(","))), tuple(output), sizes, paired)


CHAIN = {"i": 4, "j": 50, "k": 3, "l": 20, "m": 7}


@pytest.mark.parametrize(
    ("spec", "count"), [("ij,jk,kl->il", 4), ("ij,jk,kl,lm->im", 26), ("ij,jk,kl,lm,m->i", 236)]
)
def test_without_a_limit_every_tree_of_operands_is_an_order(spec: str, count: int) -> None:
    own = contraction(spec, CHAIN)
    orders = own.within(inf, 1000)
    assert orders is not None
    assert len(set(orders)) == len(orders) == count
    assert all(own.is_order(order) for order in orders)
    assert own.within(inf, count - 1) is None


def test_steps_and_orders_are_the_same_thing() -> None:
    own = contraction("ij,jk,kl,lm->im", CHAIN)
    for order in own.within(inf, 1000) or []:
        assert order_of(steps_of(order, 4), 4) == order


def test_a_limit_keeps_the_orders_that_are_within_it() -> None:
    own = contraction("ij,jk,kl,lm->im", CHAIN)
    every = own.within(inf, 1000) or []
    for factor in (1, 1.2, 2, 10):
        wanted = {order for order in every if own.work(order) <= factor * own.least}
        assert set(own.within(factor * own.least, 1000) or []) == wanted
    assert own.least == min(own.work(order) for order in every)


def test_the_least_is_what_opt_einsum_finds() -> None:
    own = contraction("ij,jk,kl,lm->im", CHAIN)
    assert own.least == own.work(order_of(path_of(own.inputs, own.output, own.sizes), 4))


def test_an_order_takes_what_its_vertices_take() -> None:
    text = "Z[i,m] <- sum A[i,j] * B[j,k] * C[k,l] * D[l,m]\noutput Z"
    graph = ed.rewrite(
        ed.parse(f"input A[i: 4, j: 50], B[j, k: 3], C[k, l: 20], D[l, m: 7]\n{text}")
    )
    own = contraction("ij,jk,kl,lm->im", CHAIN)
    order = order_of(path_of(own.inputs, own.output, own.sizes), 4)
    assert own.work(order) == sum(operations(graph, v) for v in graph.vertices.values())


def test_a_join_that_kernels_do_not_pair_takes_every_point() -> None:
    own = contraction("ij,jk,kl->il", CHAIN, paired=False)
    fused = frozenset({0b111})
    assert own.work(fused) == 3 * 4 * 50 * 3 * 20
    assert fused not in (own.within(1.2 * own.least, 100) or [])


def test_a_fused_vertex_repeats_what_a_cut_label_does_not_divide() -> None:
    text = "input A[i: 8, j: 8], B[j, k: 8], C[k, l: 8]\nZ[i,l] <- sum A[i,j] * B[j,k] * C[k,l]"
    graph = ed.parse(f"{text}\noutput Z")
    whole = operations(graph, graph["Z"])
    assert whole == 2 * (2 * 8**3)
    sizes = dict.fromkeys("ijkl", np.array([8.0, 8.0]))
    # Cut along i, both products are divided; cut along i and l, two tiles compute each part of A·B.
    halves = np.array([4.0, 4.0])
    tiles = tile_operations(graph["Z"].op, sizes | {"i": halves, "l": np.array([8.0, 4.0])})
    assert (2 * tiles[0], 4 * tiles[1]) == (whole, whole * 3 / 2)


def test_operations_of_arrays_are_those_of_each_number() -> None:
    inputs, output = (("i", "j"), ("j", "k"), ("k", "l"), ("l",)), ("i",)
    rng = np.random.default_rng(0)
    sizes = {label: rng.integers(1, 9, 20).astype(float) for label in "ijkl"}
    together = least_operations(inputs, output, sizes)
    for n in range(20):
        one = {label: int(values[n]) for label, values in sizes.items()}
        assert least_operations(inputs, output, one) == together[n]


def test_orders_that_equal_operands_turn_into_one_another_are_alike() -> None:
    sizes = dict.fromkeys("ijkl", 10) | {"a": 3}
    own = contraction("ijkl,ja,ka,la->ia", sizes)
    tables = own.symmetries(["X", "U", "U", "U"], fixed=True)
    assert len(tables) == 6
    orders = own.within(inf, 100) or []
    firsts = one_of_each(orders, tables)
    assert len(orders) == 26
    assert len(firsts) == 9
    skewed = contraction("ijkl,ja,ka,la->ia", sizes | {"l": 20})
    assert len(skewed.symmetries(["X", "U", "U", "U"], fixed=True)) == 2
    assert len(own.symmetries(["X", "U", "V", "W"], fixed=True)) == 1


def test_labels_of_a_result_that_is_read_stay_where_they_are() -> None:
    own = contraction("ij,jk,kl->il", dict.fromkeys("ijkl", 10))
    assert len(own.symmetries(["A", "A", "A"], fixed=False)) == 2  # from left to right, and back
    assert len(own.symmetries(["A", "A", "A"], fixed=True)) == 1


def test_near_orders_differ_by_one_subset() -> None:
    own = contraction("ij,jk,kl,lm->im", CHAIN)
    order = frozenset({0b0011, 0b1100, 0b1111})
    near = own.near(order, inf)
    assert frozenset({0b0011, 0b1111}) in near
    assert (
        frozenset({0b0011, 0b0111, 0b1111}) in near or frozenset({0b0011, 0b1011, 0b1111}) in near
    )
    assert all(own.is_order(each) for each in near)
    assert set(coarser(order)) >= {frozenset({0b1111}), order}
