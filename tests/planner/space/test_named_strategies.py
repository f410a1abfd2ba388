"""The named strategies move what the systems they are named for move, counted by hand.

One layer of LLaMA on p devices, in bytes over all devices: a ring all-gather or reduce-scatter of n
bytes moves (p - 1) n in all, (p - 1)/p · n a device; an all-reduce is one of each; an all-to-all
moves (p - 1)/p · n in all.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from simulate import simulate
from transformer import transformer

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.layout.view import planned_views
from eindecomp.models.llama import Config, prefill_graph
from eindecomp.models.optimizers import training_step
from eindecomp.planner.make import plan
from eindecomp.planner.space.strategy import applicable, strategy_of
from eindecomp.show.compare import table_of
from strategies import arrays

S, A, H, D, F = 4096, 4096, 32, 128, 11008
WEIGHTS = 4 * (4 * A * H * D + 3 * A * F + 2 * A)
"""The bytes of a layer's weights, Ψ in the papers on ZeRO."""
COUNTS = [2, 4, 8]
EXAMPLES = Path(__file__).parents[3] / "examples"


def stream(batch: int) -> int:
    """The bytes of what flows from layer to layer."""
    return 4 * batch * S * A


def loss(devices: int) -> int:
    """The all-reduce of the loss, which no paper counts."""
    return 2 * (devices - 1) * 4


def step(batch: int = 8) -> ed.Graph:
    """A training step of one layer with plain gradient descent."""
    graph = transformer(1, batch)
    last = graph.outputs[0]
    graph.einsum("b s a ->", last, join="x**2", agg="sum", name="loss")
    graph = ed.Graph.of(graph.vertices.values(), ["loss"], graph.scalars)
    weights = [vertex.name for vertex in graph.inputs if vertex.name != "E"]
    return training_step(graph, "loss", weights, "sgd")


def trained(strategy: object, devices: int) -> ed.Plan:
    graph = step()
    made = plan(graph, devices, strategy=strategy)
    assert made.cost == made.bound
    return made


@pytest.mark.parametrize("devices", COUNTS)
def test_data_parallelism_moves_nothing_forward(devices) -> None:
    assert plan(transformer(1, 8), devices, strategy="data").cost == 0


@pytest.mark.parametrize("devices", COUNTS)
def test_data_parallelism_all_reduces_gradients(devices) -> None:
    """2 (p - 1)/p Ψ a device; every device updates all weights, which stay where they are."""
    made = trained("data", devices)
    assert made.cost == 2 * (devices - 1) * WEIGHTS + loss(devices)
    assert set(made.parts["new_WQ0"].values()) == {1}
    assert all(span.axes == () for span in made.given["WQ0"].home)
    assert made.given["WQ0"].second is None


@pytest.mark.parametrize("devices", COUNTS)
def test_zero_gathers_weights_twice_and_scatters_gradients(devices) -> None:
    """3 (p - 1)/p Ψ a device: forward, backward, and the reduce-scatter of gradients."""
    made = trained("zero", devices)
    assert made.cost == 3 * (devices - 1) * WEIGHTS + loss(devices)
    assert all(layouts.second is None for layouts in made.given.values())
    assert all(
        sum(len(span.axes) for span in made.given[name].home) == len(made.mesh.sizes)
        for name in ("WQ0", "W10", "N0")
    )


@pytest.mark.parametrize("devices", COUNTS)
def test_megatron_all_reduces_twice_a_layer(devices) -> None:
    """4 (p - 1)/p b·s·a a device and layer forward: after attention and after the feed-forward net.

    Each is made of a reduce-scatter and an all-gather, between which norms are cut along s or b.
    """
    made = plan(transformer(1, 8), devices, strategy="megatron")
    assert made.cost == 4 * (devices - 1) * stream(8)


@pytest.mark.parametrize("devices", [4, 8])
def test_megatron_in_training(devices) -> None:
    """8 (p - 1) b·s·a for four all-reduces, as Megatron has them.

    The gradients that come back from Q, K and V, and from both halves of the feed-forward net, are
    added before they are reduced. Gradients of norms are all-reduced.
    """
    made = trained("megatron", devices)
    norms = 2 * 2 * (devices - 1) * 4 * A
    assert made.cost == 8 * (devices - 1) * stream(8) + norms + loss(devices)
    assert made.parts["new_WQ0"]["h"] == made.parts["new_W10"]["f"] == devices


@pytest.mark.parametrize("devices", COUNTS)
def test_ulysses_changes_from_positions_to_heads_and_back(devices) -> None:
    """Four all-to-alls a layer: queries, keys, values, and what attention makes of them.

    Division by the sum of exponentials is a vertex outside attention, so they go along.
    """
    made = plan(transformer(1), devices, strategy="ulysses")
    sums = 4 * H * S
    assert made.cost == (4 * stream(1) + sums) * (devices - 1) // devices
    assert made.parts["T0"]["h"] == made.parts["Q0"]["s"] == devices


@pytest.mark.parametrize("devices", COUNTS)
def test_context_parallelism_gathers_keys_and_values(devices) -> None:
    for name in ("context", "sequence"):
        made = plan(transformer(1), devices, strategy=name)
        assert made.cost == 2 * (devices - 1) * stream(1)


def test_rotations_are_fetched_once_and_masks_never() -> None:
    """Four vertices of two layers read R; real systems compute both where they need them."""
    shape = {"vocabulary": 64, "width": 64, "heads": 8, "kv_heads": 8, "head_size": 8}
    graph = ed.rewrite(prefill_graph(Config(**shape, layers=2, hidden=128), 1, 512))
    made = plan(graph, 4, strategy="megatron", inputs="sharded", rewrite=False)
    moved = {name: n for (name, *_), n in made.costs.edges.items() if name in ("R", "M")}
    assert set(moved.values()) == {0}
    assert made.costs.join["R"] == 3 * 4 * prod(graph["R"].shape)


def test_degrees_divide_devices_among_labels() -> None:
    """Data 2 × tensor 4: all-reduces among four devices, each pair of groups on its own half."""
    strategy = {"labels": ["h", "f"], "degrees": {"b": 2}}
    made = plan(transformer(1, 8), 8, strategy=strategy)
    assert made.parts["T0"] == {"b": 2, "h": 4, "s": 1, "t": 1, "d": 1}
    assert made.parts["G0"] == {"b": 2, "s": 1, "f": 4, "a": 1}
    assert made.cost == 2 * 4 * (4 - 1) * stream(4)
    assert made.strategy == {"labels": {"*": ("h", "f")}, "degrees": {"b": 2}, "state": "free"}


def test_vertices_differ_by_label_and_by_name_and_all_others_come_last() -> None:
    strategy = {"labels": {"*": ["s"], "G0": ["f"], "t": ["h"]}}
    made = plan(transformer(1), 4, strategy=strategy)
    assert made.parts["T0"]["h"] == made.parts["G0"]["f"] == made.parts["Q0"]["s"] == 4
    assert made.strategy["labels"] == {"G0": ("f",), "t": ("h",), "*": ("s",)}


def test_megatron_and_zero_together() -> None:
    """Tensor parallelism in groups of 4; between 2 groups, each quarter of a weight is gathered.

    The weights of norms are gathered by all 8 devices.
    """
    strategy = {"labels": ["h", "f"], "degrees": {"b": 2}, "state": "gathered"}
    made = trained(strategy, 8)
    tensor = 2 * 8 * (4 - 1) * stream(4)
    norms = 4 * 2 * A
    zero = 3 * (2 - 1) * (WEIGHTS - norms) + 3 * (8 - 1) * norms
    assert made.cost == tensor + zero + loss(8)
    assert made.given["WQ0"].second is None


@pytest.mark.parametrize(
    ("devices", "batch", "degree"), [(8, 64, None), (16, 64, 2), (64, 64, 8), (512, 8, 8)]
)
def test_tensor_parallelism_stays_within_a_server_if_sequences_suffice(devices, batch, degree):
    graph = transformer(1, batch)
    strategy = strategy_of("megatron+zero", graph, devices)
    assert strategy.degrees == (() if degree is None else (("b", degree),))
    named = applicable(graph, devices, stateful=True)
    assert ("megatron+zero" in named) == (degree is not None)
    assert "zero" in named
    assert "zero" not in applicable(graph, devices)


def test_the_vocabulary_is_cut_where_there_is_one() -> None:
    graph = ed.parse("""
    input X[b: 4, s: 8, a: 16], W[a, f: 64], U[f, h: 8], H[v: 256, h]
    G[b,s,f] <- sum X[b,s,a] * W[a,f]
    Y[b,s,h] <- sum G[b,s,f] * U[f,h]
    L[b,s,v] <- sum Y[b,s,o] * H[v,o]
    output L
    """)
    assert plan(graph, 4, strategy="megatron", rewrite=False).parts["L"]["v"] == 4


@pytest.mark.long
@pytest.mark.parametrize("name", ["data", "zero", "megatron", "context", "ulysses", None])
def test_no_strategy_costs_less_than_none(name) -> None:
    free = trained(None, 4)
    assert free.cost <= trained(name, 4).cost


def test_a_plan_keeps_its_strategy_in_a_file(tmp_path) -> None:
    strategy = {"labels": {"t": ["h"], "*": ["s"]}, "degrees": {"b": 2}}
    made = plan(transformer(1, 8), 4, strategy=strategy)
    made.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == made
    assert "strategy b over 2, then h where t is, s" in str(made)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"label": ["s"]}, "no 'label'; did you mean 'labels'"),
        ({"labels": "s"}, "a list of labels"),
        ({"labels": {"t": []}}, "a list of labels"),
        ({"labels": ["s"], "degrees": ["b"]}, r"degrees are \{label: devices\}"),
        ({"labels": ["s"], "degrees": {"b": 3}}, r"degrees \{'b': 3\} do not divide 4 devices"),
        ({"labels": ["s"], "degrees": {"b": 0}}, "do not divide 4 devices"),
        ({"labels": ["s"], "state": "lost"}, "state is one of free, replicated, gathered"),
        ({"labels": ["nope"]}, "no tensor has the strategy's label 'nope'"),
        ({"labels": ["s"], "degrees": {"q": 2}}, "no tensor has the strategy's label 'q'"),
        ({"labels": {"QO": ["s"]}}, "'QO' is neither a label nor a vertex"),
        (["nope"], "no tensor has any label of the strategy"),
    ],
)
def test_what_is_no_strategy_is_named(strategy, message) -> None:
    with pytest.raises(PlanError, match=message):
        plan(transformer(1), 4, strategy=strategy)


GROUPED = Config(vocabulary=16, width=16, layers=1, heads=8, kv_heads=4, head_size=4, hidden=32)
"""h = 4 heads of keys, each shared by g = 2 of queries."""


def grouped(tokens: int = 32, batch: int = 1) -> ed.Graph:
    """A layer of LLaMA with grouped keys, and what comes before and after."""
    return ed.rewrite(prefill_graph(GROUPED, batch, tokens, keep=False))


def check_runs(made: ed.Plan) -> None:
    """Devices that hold arrays of their own compute the reference, and receive what was planned."""
    values = arrays(made.graph)
    result = ed.run(made, values, engine="apart")
    assert result.stats.bytes_moved == made.traffic.total == simulate(made).total
    for name, wanted in ed.evaluate(made.graph, values).items():
        np.testing.assert_allclose(result[name], wanted, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("devices", "heads", "groups"), [(4, 4, 1), (8, 4, 2), (16, 4, 2)])
def test_usp_is_ulysses_inside_a_server_and_a_ring_between_servers(devices, heads, groups) -> None:
    """Attention is cut by heads over 8 devices and by positions over the rest."""
    graph = grouped()
    made = plan(graph, devices, strategy="usp", rewrite=False)
    for name in ("T0", "A0"):
        cut = made.parts[name]
        assert (cut["h"], cut["g"], cut["s"]) == (heads, groups, devices // (heads * groups))
    assert all(made.parts[name]["s"] == devices for name in ("K0", "Q0", "O0", "G0"))
    assert ("usp" in applicable(graph, devices)) == (devices > 8)
    check_runs(made)


def test_usp_is_ulysses_where_heads_suffice() -> None:
    graph = transformer(1)
    usp, ulysses = (plan(graph, 8, strategy=name) for name in ("usp", "ulysses"))
    assert (usp.cost, usp.parts) == (ulysses.cost, ulysses.parts)


def test_usp_moves_a_server_s_heads_around_the_ring() -> None:
    """Queries and results go over to heads; keys and values of a head come to all its positions.

    With U devices for heads and R around the ring, a device has s / p positions of all heads: it
    gets 1/U of the heads for s/R positions of queries, of which it had 1/U, and for all of keys.
    """
    devices, heads = 64, 8
    made = plan(transformer(1), devices, strategy="usp")
    rounds = devices // heads
    sums = 4 * H * S
    queries = (2 * stream(1) + sums) * (heads - 1) // heads
    keys = 2 * (rounds * stream(1) - stream(1) // heads)
    assert made.cost == queries + keys


@pytest.mark.parametrize("devices", [4, 8])
def test_a_ring_carries_heads_of_keys_not_of_queries(devices) -> None:
    """Every device gets the keys and values that it lacks, (p - 1)/p of each: h · d numbers."""
    graph = grouped()
    made = plan(graph, devices, strategy="ring", rewrite=False)
    item, numbers = 4, 32 * GROUPED.kv_heads * GROUPED.head_size
    fetched = sum(n for (source, *_), n in made.costs.edges.items() if source in ("KR0", "V0"))
    copied = sum(made.costs.repartition.get(name, 0) for name in ("KR0", "V0"))
    assert fetched + copied == 2 * (devices - 1) * numbers * item
    assert made.parts["T0"]["s"] == made.parts["K0"]["s"] == devices
    assert "ring" not in applicable(graph, devices)  # keys come from positions s: it is "context"
    assert made.cost == plan(graph, devices, strategy="context", rewrite=False).cost
    check_runs(made)


def test_a_ring_cuts_keys_that_have_positions_of_their_own() -> None:
    graph = ed.load(EXAMPLES / "multihead_attention.ein")
    made = plan(graph, 4, strategy="ring", rewrite=False)
    views = {name: view.labels for name, view in planned_views(graph)}
    alone = [name for name, labels in views.items() if "t" in labels and "s" not in labels]
    assert alone
    assert {made.parts[name]["t"] for name in alone} == {4}
    assert {cut["s"] for name, cut in made.parts.items() if "s" in views[name]} == {4}
    assert "ring" in applicable(graph, 4)


def test_hierarchical_data_parallelism_shards_state_inside_servers() -> None:
    """Two servers of 8: weights are gathered inside a server, forward and backward.

    Gradients are reduced by all, and each eighth of them goes to the other server.
    """
    graph = step(16)
    made = plan(graph, 16, strategy="hsdp")
    assert made.cost == 2 * 2 * (8 - 1) * WEIGHTS + 16 * WEIGHTS + loss(16)
    for name in ("WQ0", "W10", "N0"):
        axes = [axis for span in made.given[name].home for axis in span.axes]
        assert sorted(axes) == [1, 2, 3]
        assert made.given[name].second is None
    assert "hsdp" in applicable(graph, 16, stateful=True, repeated=True)
    assert "hsdp" not in applicable(graph, 8, stateful=True, repeated=True)


def test_hierarchical_data_parallelism_runs() -> None:
    graph = ed.parse("""
    input X[b: 16, a: 8], W[a, f: 16], lr[]
    H[b,f] <- sum X[b,a] * W[a,f]
    G[a,f] <- sum X[b,a] * H[b,f]
    new_W[a,f] <- W[a,f] - lr[] * G[a,f]
    output new_W
    tie W <- new_W
    """)
    made = plan(graph, 16, strategy="hsdp", rewrite=False)
    assert made.parts["G"]["b"] == made.parts["H"]["b"] == 16
    assert made.parts["new_W"]["f"] == 8
    check_runs(made)


def test_a_label_that_a_kind_lists_is_cut_by_so_many_only_there() -> None:
    strategy = {"labels": {"t": ["h", "s"], "*": ["s"]}, "degrees": {"h": 2, "b": 2}}
    made = plan(transformer(1, 2), 8, strategy=strategy)
    assert made.parts["T0"] == {"b": 2, "h": 2, "s": 2, "t": 1, "d": 1}
    assert made.parts["Q0"] == {"b": 2, "s": 4, "h": 1, "d": 1, "a": 1}


@pytest.mark.parametrize(
    ("name", "uses"), [("data", 2), ("context", None), ("ulysses", 4), ("usp", None)]
)
def test_a_strategy_that_cannot_use_all_devices_says_so(name, uses) -> None:
    """Two sequences, and four heads, on 8 devices."""
    graph = ed.parse("""
    input Q[b: 2, h: 4, s: 16, d: 8], K[b, h, t: 16, d]
    T[b,h,s,t] <- sum Q[b,h,s,d] * K[b,h,t,d]
    U[b,h,s] <- max T[b,h,s,t]
    Y[b,s,d] <- sum exp(Q[b,h,s,d] - U[b,h,s])
    output Y
    """)
    [_, row] = compared = plan(graph, 8, rewrite=False).compare({name: name})
    assert row.uses == uses
    told = "uses" if uses is None else f"uses {uses} of 8 devices"
    assert (told in table_of(compared, width=200)) == (uses is not None)
