"""Tiles cut for cores: those of a large vertex at once, small vertices whole, the same results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.threads import engine, schedule, tiled
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.engines.threads.tiled import (
    SharedMemoryProgram,
    cut_for_cores,
    tile_program,
    whole_box,
)
from eindecomp.layout.boxes import inside, meet, volume
from eindecomp.tra.program.make import program_of

NETWORK = """
input X[i: 256, j: 384], V[j, h: 512], W[h, j]
H[i,h] <- sum X[i,j] * V[j,h]
G[i,h] <- exp(-abs(H[i,h]))
P[i,j] <- sum G[i,h] * W[h,j]
Y[i,j] <- tanh(X[i,j])
Z[i,j] <- Y[i,j] + P[i,j]
N[i,j] <- softmax[j] Z[i,j]
output N
"""


@contextmanager
def cores(count: int, least: float | None = None) -> Iterator[None]:
    """So many cores; with `least`, so many seconds are worth calling them."""
    with patch.object(engine, "cores", lambda: count):
        if least is None:
            yield
            return
        with (
            patch.multiple(tiled, APART=least, TOGETHER=least),
            patch.object(schedule, "APART", least),
        ):
            yield


def arrays_for(graph: ed.Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Small numbers: exponentials of exponentials make much of how the last digits are rounded."""
    rng = np.random.default_rng(seed)
    return {v.name: rng.uniform(-0.5, 0.5, v.shape).astype(v.dtype) for v in graph.inputs}


def close(found, wanted) -> None:
    for name, expected in wanted.items():
        rough = 2e-2 if expected.dtype.itemsize == 2 else 2e-5
        left, right = (x.astype(np.float64) for x in (found[name], expected))
        scale = max(np.abs(right[np.isfinite(right)]).max(initial=0), 1e-6)
        np.testing.assert_allclose(left, right, rtol=0, atol=rough * scale)


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 8), count=st.integers(1, 4))
def test_whatever_is_cut_gives_what_the_reference_gives(seed, devices, count):
    graph = random_graph(seed, tree=False)
    arrays = arrays_for(graph, seed)
    plan = ed.plan(graph, devices)
    with cores(count, least=0.0):
        found = ed.run(plan, arrays)
    close(found, ed.evaluate(graph, arrays))
    assert found.stats.bytes_moved == plan.cost


def together(program) -> dict[str, list]:
    """The boxes of the vertices whose tiles are computed at once."""
    cut = (step for step in program.ready.schedule.steps if len(step.calls) > 1)
    return {step.calls[0].vertex: [call.box for call in step.calls] for step in cut}


def test_large_vertices_are_cut_along_their_results():
    graph = ed.parse(NETWORK)
    arrays = arrays_for(graph)
    plan = ed.plan(graph, 2, strategy=["j"])
    with cores(2):
        program = ThreadsEngine().prepare(plan)
        found = program.run(arrays, {}, (), None)
    cut = together(program)
    assert {"H", "G", "P"} <= cut.keys()
    assert all(len(boxes) == 2 for boxes in cut.values())
    # The longer label of the larger matrix: the other one is read by both.
    assert cut["H"] == [((0, 256), (0, 256)), ((0, 256), (256, 512))]
    assert found.stats.workers == 2
    close(found, ed.evaluate(graph, arrays))


@pytest.mark.parametrize(("devices", "count"), [(1, 2), (2, 1)])
def test_one_device_or_core_is_not_given_parts(devices, count):
    graph = ed.parse(NETWORK)
    with cores(count):
        program = ThreadsEngine().prepare(ed.plan(graph, devices))
        assert not together(program)
        assert program.run(arrays_for(graph), {}, (), None).stats.workers == 1


LONG = "input X[i: 2000, j: 2000], Y[j, k: 2000]\nZ[i,k] <- {} X[i,j] {} Y[j,k]\noutput Z"


@pytest.mark.parametrize(("agg", "join", "is_partial"), [("sum", "*", False), ("max", "-", True)])
def test_of_what_takes_long_only_products_are_cut_anew(agg, join, is_partial):
    plan = ed.plan(ed.parse(LONG.format(agg, join)), 2, strategy=["j"])
    with cores(2):
        program = ThreadsEngine().prepare(plan)
    assert [call.is_partial for call in program.ready.schedule.calls[:2]] == [is_partial] * 2


@pytest.mark.parametrize(("count", "wide", "tiles"), [(1, 9, 1), (2, 99, 2), (3, 99, 3), (2, 8, 8)])
def test_products_have_as_many_tiles_as_cores_unless_all_are_wide(count, wide, tiles, monkeypatch):
    monkeypatch.setattr(tiled, "_WIDE", wide)
    monkeypatch.setattr(tiled, "APART", 0)
    monkeypatch.setattr(tiled, "TOGETHER", 0)
    graph = ed.parse("input X[i: 64, j: 8], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    plan = ed.plan(graph, 8, strategy="sqrt")
    [vertex] = cut_for_cores(tile_program(program_of(plan)), count).vertices
    assert len(vertex.tiles) == tiles
    assert sorted(device for tile in vertex.tiles for device in tile.devices) == list(range(8))
    seen = np.zeros((64, 64), int)
    for tile in vertex.tiles:
        (a, b), (c, d) = tile.box
        seen[a:b, c:d] += 1
        assert tile.reads == (((a, b), (0, 8)), ((0, 8), (c, d)))
    assert (seen == 1).all()
    arrays = {v.name: np.random.default_rng(0).random(v.shape, np.float32) for v in graph.inputs}
    finished = []
    found = ed.run(plan, arrays, ThreadsEngine(count), on_event=finished.append)
    np.testing.assert_allclose(found["Z"], arrays["X"] @ arrays["Y"], rtol=1e-5)
    assert {event.device for event in finished if hasattr(event, "device")} == set(range(8))


def verify(program: SharedMemoryProgram) -> None:
    """Raise unless blocks make up each result and are made from blocks that are there."""
    made = {vertex.name: whole_box(vertex.shape) for vertex in program.graph.inputs}
    for each in program.vertices:
        vertex = program.graph[each.name]
        whole = made[each.name] = whole_box(vertex.shape)
        blocks = [part.box for part in each.reductions or each.tiles]
        fits = sum(map(volume, blocks)) == vertex.elements
        fits &= all(inside(block, whole) for block in blocks)
        fits &= not any(meet(one, other) for one, other in combinations(blocks, 2))
        for tile in each.tiles:
            for name, box in zip(vertex.inputs, tile.reads, strict=True):
                fits &= name in made and (box is None or inside(box, made[name]))
        for reduction in each.reductions:
            parts = [each.tiles[place].box for place in reduction.members]
            fits &= all(inside(reduction.box, part) for part in parts)
        assert fits, f"these tiles do not make up {vertex}: {each}"


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 8), count=st.integers(1, 4))
def test_tiles_make_up_every_result_before_and_after_they_are_cut(seed, devices, count):
    planned = tile_program(program_of(ed.plan(random_graph(seed, tree=False), devices)))
    verify(planned)
    with cores(count, least=0.0):
        verify(cut_for_cores(planned, count))


def test_tiles_that_do_not_make_up_a_result_are_refused():
    graph = ed.parse(LONG.format("sum", "*"))
    good = tile_program(program_of(ed.plan(graph, 2, strategy=["i"])))
    [vertex] = good.vertices
    one, other = vertex.tiles
    wide = replace(one, reads=(((0, 2001), (0, 2000)), one.reads[1]))
    for tiles in [(one,), (other,), (one, one), (one, other, other), (wide, other)]:
        with pytest.raises(AssertionError, match="do not make up Z"):
            verify(replace(good, vertices=(replace(vertex, tiles=tiles),)))


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_all_runs_round_alike(devices):
    graph = ed.parse(NETWORK)
    arrays = arrays_for(graph)
    executable = ed.compile(ed.plan(graph, devices))
    wanted = executable(arrays)["N"]
    for _ in range(3):
        assert (executable(arrays)["N"] == wanted).all()
    assert (executable(arrays, on_event=lambda _: None)["N"] == wanted).all()


def test_an_error_names_the_vertex_and_a_tile():
    graph = ed.parse(
        "input X[i: 4000, j: 100], ids[k: 4000] int32\nZ[k,j] <- X[ids[k], j]\noutput Z"
    )
    arrays = arrays_for(graph) | {"ids": np.full(4000, 4000, np.int32)}
    with cores(2, least=0.0), pytest.raises(ed.RunError, match=r"Z.*tile \[0:\d+, 0:\d+\].*4000"):
        ed.run(ed.plan(graph, 2), arrays)


def test_runs_beside_each_other():
    graph = ed.parse(NETWORK)
    arrays = arrays_for(graph)
    with cores(2):
        executable = ed.compile(ed.plan(graph, 2))
        wanted = executable(arrays)["N"]
        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: executable(arrays)["N"], range(40)):
                assert (found == wanted).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_runs_too():
    graph = ed.parse(NETWORK)
    arrays = arrays_for(graph)
    with cores(2):
        executable = ed.compile(ed.plan(graph, 2))
        wanted = executable(arrays)["N"]
        child = os.fork()
        if not child:
            try:
                os._exit(0 if (executable(arrays)["N"] == wanted).all() else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert (executable(arrays)["N"] == wanted).all()
