"""The gallery: ten problems solved right, planned as their pages say, and drawn."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import many_experts
import networkx
import numpy as np
import pytest
from draw_plans import picture_of
from in_numpy import IN_NUMPY
from ising import weights
from ten_problems import ISING, PROBLEMS, SHORTEST_PATHS, VITERBI, Problem

import eindecomp as ed

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "gallery"
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


def solved(problem: Problem, sizes=None, seed: int = 0):
    """What it is given, and its outputs, computed on four devices."""
    graph = problem.graph(sizes or problem.small)
    given = problem.data(graph, np.random.default_rng(seed))
    plan = ed.plan(graph, 4, inputs=problem.inputs)
    result = ed.run(plan, given, "threads")
    assert result.stats.bytes_moved == plan.cost
    return given, {vertex.name: result[vertex.name] for vertex in graph.outputs}


@pytest.mark.one_in(3)
@each_problem
def test_four_devices_find_what_numpy_finds(problem):
    given, found = solved(problem)
    expected = IN_NUMPY[problem.name](**given, **problem.arguments(problem.small))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-5, err_msg=name)


@each_problem
def test_pytorch_finds_the_same(problem):
    torch = pytest.importorskip("torch")
    from in_torch import IN_TORCH

    given = problem.data(problem.graph(problem.small), np.random.default_rng(1))
    more = problem.arguments(problem.small)
    tensors = {n: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for n, a in given.items()}
    expected = IN_NUMPY[problem.name](**given, **more)
    for name, value in IN_TORCH[problem.name](**tensors, **more).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-5, err_msg=name)


def test_paths_are_those_of_networkx():
    given, found = solved(SHORTEST_PATHS)
    edges = np.argwhere(np.isfinite(given["D"]))
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((i, j, float(given["D"][i, j])) for i, j in edges.tolist())
    lengths = dict(networkx.all_pairs_dijkstra_path_length(graph))
    expected = [[lengths[i].get(j, np.inf) for j in range(30)] for i in range(30)]
    np.testing.assert_allclose(found["D512"], expected, rtol=1e-5)


def test_no_sequence_of_states_is_likelier_than_viterbis():
    given, found = solved(VITERBI)
    steps, batch, states = given["E"].shape
    first, pair, seen = given["start"], given["A"], given["E"]
    for b in range(batch):
        scores = {
            path: first[path[0]]
            + sum(pair[i, j] for i, j in pairwise(path))
            + sum(seen[t, b, q] for t, q in enumerate(path))
            for path in product(range(states), repeat=steps)
        }
        best = max(scores, key=lambda path: scores[path])
        assert [int(found[f"q{t}"][b]) for t in range(steps)] == list(best)
        assert found["score"][b] == pytest.approx(scores[best], rel=1e-5)


def test_the_lattice_is_summed_over_all_configurations():
    coupling = 0.3
    plan = ed.plan(ISING.graph({"block": 1, "columns": 4}), 4)
    found = ed.run(plan, weights(1, coupling))["log_Z"]
    spins = np.array(list(product((1, -1), repeat=12))).reshape(-1, 4, 3)  # columns, around
    around = (spins * np.roll(spins, 1, axis=2)).sum((1, 2))
    along = (spins[:, 1:] * spins[:, :-1]).sum((1, 2))
    total = np.exp(coupling * (around + along)).sum()
    assert float(found) == pytest.approx(np.log(total), rel=1e-5)


@pytest.mark.one_in(3)
@pytest.mark.long("mttkrp")
@each_problem
def test_page_table_and_picture_show_the_plan(problem):
    plan = problem.plan()
    assert plan.gap == 0

    page = (PAGES / f"{problem.name}.md").read_text("utf-8")
    [program] = re.findall(r'^--8<-- "(examples/gallery/[\w.]+)"$', page, re.M)
    assert (ROOT / program).stem == problem.name
    assert (ROOT / program).read_text("utf-8").count("\n") < 60
    assert f"]({problem.name}.svg)" in page
    assert f"{plan.cost:,} bytes" in page

    index = (PAGES / "index.md").read_text("utf-8")
    [row] = [line for line in index.splitlines() if f"({problem.name}.md)" in line]
    [_, naive] = plan.compare({"naive": list(problem.naive)})
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[4] == f"{plan.cost:,}"
    assert cells[5].startswith(f"{naive.cost:,} (")

    plan = problem.plan(sizes=problem.drawn) if problem.drawn else plan
    drawn = picture_of(problem).read_text("utf-8")
    redraw = "out of date: python examples/gallery/draw_plans.py draws all plans anew"
    assert plan.draw().svg == drawn, redraw
    assert len(drawn.encode()) < 60_000


def test_links_of_the_gallery_lead_somewhere():
    for page in PAGES.glob("*.md"):
        links = re.findall(r"\]\(([\w./-]+\.(?:md|svg))|src=\"([\w.]+)\"", page.read_text("utf-8"))
        missing = [a or b for a, b in links if not (page.parent / (a or b)).exists()]
        assert not missing, page


@pytest.mark.parametrize("devices", [2, 4])
def test_experts_with_slots_per_device_move_two_all_to_alls(devices):
    """All slots but those of the device's own expert, there and back, whatever the gates say."""
    graph = many_experts.grouped(32, 16, 64, devices, 4, devices)
    pin = {"X": {"g": devices}, "Y": {"g": devices}, "G": {}}
    made = ed.plan(graph, devices, inputs="sharded", pin=pin, rewrite=False)
    slots = devices * devices * 4
    assert made.cost == made.bound == 2 * 4 * slots * 16 * (devices - 1) // devices
    for seed in range(2):
        rng = np.random.default_rng(seed)
        given = {v.name: rng.normal(size=v.shape).astype(np.float32) for v in graph.inputs}
        result = ed.run(made, given, engine="apart")
        assert result.stats.bytes_moved == made.cost
        np.testing.assert_allclose(
            result["Y"], ed.evaluate(graph, given)["Y"], rtol=1e-3, atol=1e-3
        )
