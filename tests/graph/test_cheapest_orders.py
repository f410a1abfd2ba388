"""The cheapest pairwise orders of a contraction: no tree of its operands takes fewer operations."""

from __future__ import annotations

from math import inf, prod

import opt_einsum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.graph.orders import Contraction

Labels = tuple[str, ...]
Tree = int | tuple["Tree", "Tree"]


def all_trees(leaves: tuple[int, ...]) -> list[Tree]:
    if len(leaves) == 1:
        return [leaves[0]]
    found: list[Tree] = []
    for mask in range(1, 1 << (len(leaves) - 1)):
        left = tuple(k for at, k in enumerate(leaves) if not mask >> at & 1)
        right = tuple(k for at, k in enumerate(leaves) if mask >> at & 1)
        found += [(a, b) for a in all_trees(left) for b in all_trees(right)]
    return found


def leaves_of(tree: Tree) -> set[int]:
    return {tree} if isinstance(tree, int) else leaves_of(tree[0]) | leaves_of(tree[1])


def work_of(tree: Tree, inputs: list[Labels], output: Labels, sizes: dict[str, int]) -> int:
    def labels(part: Tree) -> set[str]:
        if isinstance(part, int):
            return set(inputs[part])
        inside = leaves_of(part)
        others = (own for k, own in enumerate(inputs) if k not in inside)
        needed = set(output).union(*others)
        return {label for k in inside for label in inputs[k]} & needed

    if isinstance(tree, int):
        return 0
    first, second = tree
    both = labels(first) | labels(second)
    step = prod(sizes[label] for label in both) * (2 if both - labels(tree) else 1)
    parts = (work_of(part, inputs, output, sizes) for part in tree)
    return step + sum(parts)


@given(st.data())
def test_the_cheapest_orders_are_the_cheapest_of_all_trees(data: st.DataObject) -> None:
    own = st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True).map(tuple)
    inputs: list[Labels] = data.draw(st.lists(own, min_size=3, max_size=4))
    known = sorted({label for labels in inputs for label in labels})
    output = tuple(data.draw(st.lists(st.sampled_from(known), unique=True, max_size=3)))
    sizes = {label: data.draw(st.integers(1, 9)) for label in known}
    every = sorted(
        work_of(tree, inputs, output, sizes) for tree in all_trees(tuple(range(len(inputs))))
    )
    contraction = Contraction(tuple(inputs), output, sizes, paired=False)
    found = contraction.cheapest_within(inf, 4)
    assert [contraction.work(order) for order in found] == every[:4]
    assert found[0] == contraction.cheapest
    assert all(map(contraction.is_order, found))
    near = contraction.cheapest_within(1.5, 100)
    assert sorted(map(contraction.work, near)) == [work for work in every if work <= 1.5 * every[0]]


def test_many_operands_have_an_order_of_pairs() -> None:
    labels = [opt_einsum.get_symbol(k) for k in range(12)]
    inputs = tuple((labels[k], labels[k + 1]) for k in range(11))
    sizes = {label: 3 + k % 4 for k, label in enumerate(labels)}
    contraction = Contraction(inputs, (labels[0], labels[-1]), sizes, paired=False)
    [order] = contraction.cheapest_within(2, 4)
    assert order == contraction.cheapest
    assert contraction.is_order(order)
    assert len(order) == 10


@pytest.mark.parametrize("output", [("i",), ("i", "new")])
def test_labels_of_the_output_alone_change_nothing(output: Labels) -> None:
    sizes = {"i": 9, "j": 9, "k": 9, "new": 5}
    contraction = Contraction((("i", "j"), ("j", "k"), ("k",)), output, sizes, paired=False)
    assert contraction.cheapest == {0b110, 0b111}
    assert contraction.work(contraction.cheapest) == 324
