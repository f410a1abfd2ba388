"""A bound by prices: below every plan, exact on trees, and close to what elimination proves."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from brute_ordered import brute_ordered
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.layout.mesh import Mesh
from eindecomp.planner import budgets
from eindecomp.planner.costs.least_prices import LeastBytes
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.model.layout_prices import LayoutPrices
from eindecomp.planner.model.priced_layouts import layout_prices
from eindecomp.planner.model.tables import choices_of_all
from eindecomp.planner.search.relaxation import Relaxation, relax
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.layout_rules import LayoutRules, alike_vertices
from eindecomp.solve.exact.least_sums import least_of_columns, least_of_pairs, least_of_rows


def search_on(graph: ed.Graph, sizes: tuple[int, ...], inputs: str = "sharded") -> Search:
    return Search(
        graph, PriceInBytes(Mesh(tuple("abcdef"[: len(sizes)]), sizes)), LayoutRules(inputs)
    )


def priced(search: Search) -> LayoutPrices:
    asked = Relaxation(search, LeastBytes(search.mesh))
    own = choices_of_all(search.graph, search.rules, asked.choices_of(1 << 12), {})
    found = layout_prices(search.graph, search.rules, asked.price, own, inf)
    assert found is not None
    return found


def layers(count: int) -> ed.Graph:
    """Residual layers, all alike, in which one tensor has three readers."""
    lines = ["input X0[b: 64, a: 32]"]
    for k in range(count):
        lines += [f"input U{k}[a, f: 128], V{k}[a, f], W{k}[f, a]"]
        lines += [
            f"Y{k}[b,f] <- sum X{k}[b,a] * U{k}[a,f]",
            f"Z{k}[b,f] <- sum X{k}[b,a] * V{k}[a,f]",
        ]
        lines += [
            f"G{k}[b,f] <- relu(Y{k}[b,f]) * Z{k}[b,f]",
            f"D{k}[b,a] <- sum G{k}[b,f] * W{k}[f,a]",
        ]
        lines += [f"X{k + 1}[b,a] <- X{k}[b,a] + D{k}[b,a]"]
    return ed.parse("\n".join([*lines, f"output X{count}"]))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_prices_never_pass_the_optimum(seed, inputs):
    """Nor does what is chosen by them cost less; bounds in bytes are whole numbers."""
    graph = random_graph(seed, tree=seed % 2 == 0)
    for sizes in ((2, 2), (4, 3), (6,), (2, 2, 2)):
        search = search_on(graph, sizes, inputs)
        prices = priced(search)
        before = -inf
        for _ in range(3):
            prices.raise_bound(inf, inf, 2)
            assert before <= prices.bound <= prices.cost_of(prices.choose())
            before = prices.bound
        assert isinstance(prices.bound, int)
        assert prices.bound <= brute_ordered(graph, sizes, inputs)


@pytest.mark.parametrize("seed", range(12))
def test_they_are_close_to_what_elimination_proves(seed, monkeypatch):
    """Trees are exact; other small graphs too, but for a few."""
    graph = random_graph(seed, tree=seed % 2 == 0)
    search = search_on(graph, (2, 2, 2))
    exact = relax(Relaxation(search, LeastBytes(search.mesh)), 10)
    monkeypatch.setattr(budgets, "RELAXED_CELLS", 0)
    found = relax(Relaxation(search_on(graph, (2, 2, 2)), LeastBytes(search.mesh)), 10)
    found = found.tightened(exact.bound, inf)
    assert found.prices is not None
    assert found.bound <= exact.bound
    assert found.bound == exact.bound or (seed % 2 and found.bound > 0.9 * exact.bound)


def test_inner_layers_take_over_the_prices_of_outer_ones():
    graph = layers(40)
    search = search_on(graph, (2, 2, 2))
    slow, quick = priced(search), priced(search)
    alike = alike_vertices(graph, search.rules, budgets.FAR_STEPS)
    quick.begin(alike, inf)
    for _ in range(budgets.FIRST_SWEEPS):
        slow.raise_bound(inf, inf, 2)
    slow.raise_bound(inf, inf, 0)
    assert 0.95 * slow.bound <= quick.bound <= slow.bound
    quick.raise_bound(inf, inf, 0)
    assert quick.bound == pytest.approx(slow.bound, rel=1e-3)


def test_few_layers_have_no_inner_ones():
    prices = priced(search_on(layers(4), (2, 2)))
    prices.begin({}, inf)
    assert prices.bound == -inf


def test_a_charge_for_memory_only_adds_to_prices():
    search = search_on(layers(2), (2, 2, 2))
    prices = priced(search)
    prices.raise_bound(inf, inf, 0)
    free, name = prices.bound, "D1"
    maker = prices.makers[name]
    usage = {name: (np.zeros(len(maker.assigned), np.int64), np.ones(len(maker.placed), np.int64))}
    prices.charge(usage, 5.0, 3.0)  # every home of D1 holds 1, of 3
    prices.raise_bound(inf, inf, 1e-9)
    assert prices.bound == pytest.approx(free + 5 - 15, abs=1)


@given(st.integers(1, 9), st.integers(0, 20), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_loops_find_what_numpy_finds(rows, columns, readers, seed):
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        return np.where(rng.random(shape) < 0.2, np.inf, rng.integers(0, 99, shape).astype(float))

    table, ours, theirs = numbers(rows, columns), numbers(readers, rows), numbers(readers, columns)
    by_row, by_column = numbers(rows), numbers(columns)
    least = (table + by_column).min(axis=1, initial=np.inf)
    np.testing.assert_array_equal(least_of_rows(table, by_column), least)
    least = (table + by_row[:, None]).min(axis=0)
    np.testing.assert_array_equal(least_of_columns(table, by_row), least)
    both = by_row[:, None] + table
    for one, other in zip(ours, theirs, strict=True):
        both += np.minimum(one[:, None], other[None])
    alone = by_row + ours.sum(axis=0)
    first, second = least_of_pairs(by_row, table, (ours, theirs))
    np.testing.assert_array_equal(first, np.minimum(alone, both.min(axis=1, initial=np.inf)))
    np.testing.assert_array_equal(second, both.min(axis=0))


def test_unequal_layers_are_proved_on_many_devices():
    """Wide tables, which had no bound but a loose one."""
    widths = [1024 + 96 * (5 * k % 17) for k in range(9)]
    lines = [f"input X0[b: 4096, w0: {widths[0]}]"]
    for k in range(8):
        lines += [f"input W{k}[w{k}, w{k + 1}: {widths[k + 1]}]"]
        lines += [f"Y{k}[b,w{k + 1}] <- sum X{k}[b,w{k}] * W{k}[w{k},w{k + 1}]"]
        lines += [f"X{k + 1}[b,w{k + 1}] <- relu(Y{k}[b,w{k + 1}])"]
    plan = ed.plan(ed.parse("\n".join([*lines, "output X8"])), 512, inputs="sharded", time_limit=20)
    assert plan.gap == 0
