"""Products: as good as the best grid of devices, at once, on any number of them."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

import eindecomp as ed


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
    graph = ed.parse(
        "input A[i: 1024, k: 1024], B[k, j: 1024]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C"
    )
    plan = ed.plan(graph, 512, inputs="sharded", memory="256KB", time_limit=60)
    assert plan.cost == 3 * 4 * 1024**2 * 7
    assert plan.parts["C"] == {"i": 8, "j": 8, "k": 8}
