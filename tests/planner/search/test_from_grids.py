"""Grids of one product: as good as all plans on small meshes, as the best grid on large ones."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import pytest
from brute_ordered import brute_ordered

import eindecomp as ed
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.costs.least_prices import LeastBytes
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.search.from_grids import best_grid
from eindecomp.planner.search.relaxation import Relaxation, relax
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.grids import product_of, rows_of
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.pin import pinned_cuts

GRAPHS = (
    "input A[i: {0}, k: {1}], B[k, j: {2}]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C",
    "input A[b: {0}, k: {1}], B[b, k, j: {2}]\nC[b,j] <- sum A[b,k] * B[b,k,j]\noutput C",
    "input A[i: {0}], B[j: {2}]\nC[i,j] <- A[i] * B[j]\noutput C",
    "input A[i: {0}, k: {1}], B[k, j: {2}], v[j]\nC[i,j] <- sum A[i,k] * B[k,j]\n"
    "D[i,j] <- C[i,j] + v[j]\nE[j,i] <- exp(D[i,j])\noutput E",
    "input A[i: {0}, k: {1}], B[k, j: {2}]\nX[i,k] <- relu(A[i,k])\n"
    "C[i,j] <- sum X[i,k] * B[k,j]\noutput C",
)


def grid_cost(graph: ed.Graph, mesh: Mesh, rules: LayoutRules) -> float | None:
    """What the best grid costs, found apart from all other stages of a search."""
    price = LeastBytes(mesh)
    relaxed = relax(Relaxation(graph, price, rules, lambda *_: None), 10)
    outcome = best_grid(Search(graph, PriceInBytes(mesh), rules, ranks=True), relaxed)
    return None if outcome is None else outcome.cost


@pytest.mark.parametrize("seed", range(24))
def test_the_best_grid_is_the_best_of_all_plans(seed: int) -> None:
    """Of uneven, tiny and even sizes, with what is computed before and after the product."""
    rng = Random(seed)
    sizes = [rng.choice((1, 2, 3, 4, 5, 7, 8, 12)) for _ in range(3)]
    graph = ed.parse(GRAPHS[seed % len(GRAPHS)].format(*sizes))
    mesh = Mesh.of_devices(rng.choice((4, 6, 8, 9, 10)))
    inputs = rng.choice(("sharded", "free"))
    assert grid_cost(graph, mesh, LayoutRules(inputs)) == brute_ordered(graph, mesh.sizes, inputs)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_grid_under_pins_is_the_best_of_all_plans(seed: int) -> None:
    rng = Random(seed)
    graph = ed.parse(GRAPHS[0].format(*(rng.choice((8, 12, 15)) for _ in range(3))))
    mesh = Mesh.of_devices(rng.choice((4, 8)))
    name = rng.choice(("A", "B", "C"))
    one = rng.choice([n for n in (1, 2, 4) if mesh.devices % n == 0])
    pin = dict(zip(graph[name].labels, (one, mesh.devices // one), strict=True))
    pinned = pinned_cuts(graph, mesh, {name: pin})
    layouts = [tuple(span.axes for span in cut) for cut in pinned[name]]
    least = brute_ordered(graph, mesh.sizes, "sharded", pin={name: layouts})
    assert grid_cost(graph, mesh, LayoutRules("sharded", pinned)) == least


def grids(sizes: tuple[int, ...], devices: int) -> list[tuple[int, ...]]:
    """Every way to write a number of devices as pieces of labels."""
    pieces = [[n for n in range(1, size + 1) if devices % n == 0] for size in sizes]
    *first, _ = pieces
    found = [(*own, devices // prod(own)) for own in product(*first) if devices % prod(own) == 0]
    return [grid for grid in found if grid[-1] <= sizes[-1]]


CONTRACTIONS = (
    ("ik,kj->ij", (4096, 4096, 4096), (512, 1024, 4096)),
    ("ik,kj->ij", (1000, 1000, 1000), (32, 60, 97, 210, 720, 1000)),
    ("ik,kj->ij", (100, 9000, 3000), (36, 210)),
    ("bik,bkj->bij", (6, 500, 500, 300), (54, 512)),
    ("bshd,bthd->bhst", (4, 512, 8, 64, 512), (3, 256)),
    ("ijk,jr,kr->ir", (300, 300, 300, 30), (64, 360)),
    ("ijkl,jr,kr,lr->ir", (64, 64, 64, 64, 16), (256,)),
)


@pytest.mark.parametrize(("spec", "sizes", "devices"), CONTRACTIONS)
def test_a_product_is_the_best_grid_at_once(
    spec: str, sizes: tuple[int, ...], devices: tuple[int, ...]
) -> None:
    """Each tensor goes to all pieces of the labels that it lacks; so many elements can be cut."""
    read, _, made = spec.partition("->")
    tensors = (*read.split(","), made)
    size = dict(zip(dict.fromkeys(c for c in spec if c.isalpha()), sizes, strict=True))
    graph = ed.Graph()
    for k, labels in enumerate(tensors[:-1]):
        graph.input(f"T{k}", {label: size[label] for label in labels})
    graph.output(graph.einsum(spec, *(v.name for v in graph.inputs), name="Z"))
    for count in devices:
        least = min(
            sum(
                4
                * prod(size[label] for label in own)
                * (prod(n for label, n in zip(size, grid, strict=True) if label not in own) - 1)
                for own in tensors
            )
            for grid in grids(sizes, count)
        )
        plan = ed.plan(
            graph, count, inputs="sharded", rewrite=False, work=None, time_limit=60, solver="exact"
        )
        assert plan.cost == plan.bound == least, count


def test_a_product_within_memory_is_the_best_grid() -> None:
    graph = ed.parse(GRAPHS[0].format(1024, 1024, 1024))
    plan = ed.plan(graph, 512, inputs="sharded", memory="256KB", time_limit=60)
    assert plan.cost == 3 * 4 * 1024**2 * 7
    assert plan.parts["C"] == {"i": 8, "j": 8, "k": 8}


def test_what_is_one_product() -> None:
    for text in GRAPHS:
        assert product_of(ed.parse(text.format(4, 4, 4))) == "C"
    two = "input A[i: 4, j: 4]\nB[i,k] <- sum A[i,j] * A[j,k]\nC[i] <- sum B[i,j]\noutput C"
    diagonal = "input A[i: 4, j: 4]\nB[i] <- A[i,i]\noutput B"
    assert product_of(ed.parse(two)) is product_of(ed.parse(diagonal)) is None


@pytest.mark.parametrize("levels", [((2, 2, 3),), ((2,), (2, 3))])
def test_rows_cut_into_the_pieces_of_their_grid(levels: tuple[tuple[int, ...], ...]) -> None:
    mesh = Mesh.of_devices(12)
    grid = ((4,), (1,), (3,)) if len(levels) == 1 else ((2, 1), (1, 2), (1, 3))
    rows = rows_of(mesh, levels, grid)
    assert len({*rows}) == len(rows) > 0
    for row in rows:
        assert sorted(axis for own in row for axis in own) == [0, 1, 2]
        assert [prod(mesh.sizes[a] for a in own) for own in row] == [*map(prod, grid)]
