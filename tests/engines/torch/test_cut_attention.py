"""Where keys are cut over devices, attention is computed vertex by vertex, as it is planned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import agree
from attention_cases import FORMS, HEAD, STEP, TAIL, sizes
from hypothesis import example, given
from hypothesis import strategies as st
from test_region_keys import check
from test_torch_attention import GRAPHS, inputs_for, small

import eindecomp as ed
from eindecomp.engines.result import TaskFinished
from eindecomp.engines.torch.attention_calls import attend_by_calls
from eindecomp.engines.torch.ready_region import ReadyRegions
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import dtype as named_type
from eindecomp.models.llama.graph import prefill_graph
from eindecomp.tra.program.make import program_of
from eindecomp.tra.tiles.ops import tiles_of
from eindecomp.tra.tiles.regions import regions_of
from verify_tiles import verify_regions, verify_tiles

WAYS = {
    "one memory": {"device": "cpu"},
    "two memories": {"device": ["cpu", "cpu"]},
    "paged": {"device": "cpu", "gpu_memory": "100MB"},
}
EARLY = (
    "\nC[b,h,g,s] <- max U[b,h,g,s,t]\nP[b,h,g,s,t] <- exp(U[b,h,g,s,t] - C[b,h,g,s])\n"
    "Z[b,h,g,s] <- sum P[b,h,g,s,t]\nO[b,s,h,g,d] <- sum P[b,h,g,s,t] / Z[b,h,g,s] * V[b,h,t,d]\n"
    "output O"
)
SIZES = {"b": 2, "h": 2, "g": 2, "s": 5, "t": 9, "e": 3, "d": 6, "offset": 2}


def text_of(form, dtype, tail=TAIL, **changed):
    return (HEAD + FORMS[form] + tail).format(**SIZES | changed, dtype=dtype)


def numbers_for(graph, dtype, seed=0):
    """Arrays in which rows may see no key of a device, or none at all."""
    rng = np.random.default_rng(seed)
    found = {"latest": 2} if "latest" in graph.scalars else {}
    for vertex in graph.inputs:
        if vertex.dtype.kind == "i":
            found[vertex.name] = rng.integers(0, 10, vertex.shape).astype(vertex.dtype)
        elif vertex.dtype.kind == "b":
            found[vertex.name] = rng.random(vertex.shape) < 0.4
        else:
            found[vertex.name] = rng.normal(size=vertex.shape).astype(named_type(dtype))
    return found


def check_result(text, dtype, devices, way, *, strategy=("t",), seed=0):
    """A plan computes what its graph says in float64, and moves what it says."""
    exact = ed.parse(text("float64"))
    graph = ed.parse(text(dtype))
    given = numbers_for(exact, dtype, seed)
    plan = ed.plan(graph, devices, strategy=[*strategy])
    with ed.compile(plan, "torch", **WAYS[way]) as executable:
        found = executable(given)
        assert found.stats.bytes_moved == plan.traffic.total
    wide = {name: np.asarray(x, "float64") if name in "QKVLWB" else x for name, x in given.items()}
    most = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 6e-2}[dtype]
    wanted = ed.evaluate(exact, wide)["O"]
    np.testing.assert_allclose(found["O"].astype("float64"), wanted, rtol=most, atol=most)


@given(
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from(["float64", "float32", "bfloat16"]),
    devices=st.integers(2, 4),
    way=st.sampled_from([*WAYS]),
    early=st.booleans(),
    sizes=sizes,
    seed=st.integers(0, 99),
)
@example("causal", "float32", 4, "two memories", False, SIZES | {"offset": -3}, 0)
@example("length", "float32", 3, "one memory", True, SIZES, 0)
@example("plain", "float32", 4, "one memory", False, SIZES | {"t": 5}, 0)
def test_keys_that_are_cut(form, dtype, devices, way, early, sizes, seed):
    sizes = sizes | {"t": max(sizes["t"], devices)}  # fewer keys are not cut
    tail = EARLY if early else TAIL
    check_result(lambda d: text_of(form, d, tail, **sizes), dtype, devices, way, seed=seed)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", ["tb", "th", "tg", "ts", "td"])
def test_keys_and_another_label(strategy, way):
    check_result(lambda d: text_of("both", d), "float32", 4, way, strategy=strategy)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strategy", ["t", "r", "tr"])
def test_stored_and_latest_keys(strategy, way):
    step = lambda d: STEP.format(dtype=d, d=8)  # noqa: E731
    check_result(step, "float32", 3, way, strategy=strategy)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("way", WAYS)
def test_models(kind, way):
    graph = GRAPHS[kind](small(2))
    arrays = inputs_for(graph)
    plan = ed.plan(graph, 3, strategy=["t"])
    with ed.compile(plan, "torch", **WAYS[way]) as executable:
        agree(executable(arrays), ed.evaluate(graph, arrays), 1e-4)


def cut_codes(text, devices, strategy):
    tiled = tiles_of(program_of(ed.plan(ed.parse(text), devices, strategy=strategy)))
    verify_tiles(tiled)
    tiled = attend_by_calls(tiled)
    verify_tiles(tiled)
    regions = regions_of(tiled)
    verify_regions(tiled, regions)
    return ReadyRegions(tiled, regions, [TorchLibrary()], fuse=False).codes


@pytest.mark.one_in(4)
@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("tail", [TAIL, EARLY], ids=["late", "early"])
def test_regions_of_equal_keys_compute_the_same(form, tail):
    for offset in (0, 2):
        for strategy in (["t"], ["t", "s"], ["b", "t"], ["s"]):
            check(cut_codes(text_of(form, "float32", tail, offset=offset, t=8, s=4), 4, strategy))


def test_more_layers_are_more_of_the_same_regions():
    counts = []
    for layers in (2, 3):
        graph = prefill_graph(replace(small(2), layers=layers), 2, 6)
        with ed.compile(ed.plan(graph, 2, strategy=["t"]), "torch", device="cpu") as executable:
            keys = [code.key for code in executable._prepared.ready.codes]
        counts.append((len({*keys}), len(keys)))
    (few, short), (many, long) = counts
    assert few == many
    assert short < long


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_hidden_keys_do_not_matter(bad, way):
    """By our own kernel, which values of another size than keys choose on CPUs."""
    graph = ed.parse(text_of("length", "float32", d=5))
    given = numbers_for(graph, "float32") | {"n": np.array([3, 7], np.int32)}
    given["K"][:, :, 7:] = bad
    wanted = ed.evaluate(graph, given)["O"]
    assert np.isfinite(wanted).all()
    for devices, strategy in ((1, None), (2, ["t"])):
        plan = ed.plan(graph, devices, strategy=strategy)
        found = ed.run(plan, given, "torch", **WAYS[way])["O"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_queries_that_are_cut_see_all_keys_by_one_call(way):
    """What comes from other devices does not come in the middle."""
    graph = GRAPHS["prefill"](small(2))
    with ed.compile(ed.plan(graph, 2, strategy=["s"]), "torch", **WAYS[way]) as executable:
        found = [op for op in executable._prepared.tiled.ops if op.call is not None]
        assert len(found) == 4


@pytest.mark.parametrize("way", WAYS)
def test_tasks_of_vertices_that_are_not_made_are_told(way):
    graph = ed.parse(text_of("causal", "float32"))
    plan = ed.plan(graph, 3, strategy=["t"])
    events = []
    ed.run(plan, numbers_for(graph, "float32"), "torch", on_event=events.append, **WAYS[way])
    done = [event.vertex for event in events if isinstance(event, TaskFinished)]
    assert {"T", "P"} <= {*done}
    last = {name: len(done) - done[::-1].index(name) for name in ("T", "P", "O")}
    assert max(last["T"], last["P"]) < last["O"]
