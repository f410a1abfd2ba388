"""Laws of tiles and regions: each tile made once, from what is there, in an order that works."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp import models
from eindecomp.errors import PlanError
from eindecomp.models.llama import Config
from eindecomp.models.llama.graph import prefill_graph, step_graph
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter
from eindecomp.tra.tiles.memory import finish_early, most_held, while_there
from eindecomp.tra.tiles.ops import OpKind, is_computed, lookups_of, tiles_of
from eindecomp.tra.tiles.regions import regions_of, show_regions
from pending_plans import CASES
from strategies import graphs
from verify_tiles import verify_regions, verify_tiles

MEMORIES = {
    "one": lambda devices: [0] * devices,
    "two": lambda devices: [device * 2 // devices for device in range(devices)],
    "each": range,
}


def tiled_of(graph, devices, memories, **asked):
    program = program_of(ed.plan(graph, devices, rewrite=False, time_limit=5, **asked))
    return tiles_of(program, list(MEMORIES[memories](devices)))


some_tiles = given(
    graph=st.one_of(
        graphs(),
        st.integers(0, 2**32).map(lambda seed: random_graph(seed, tree=False, moves=True)),
    ),
    devices=st.sampled_from([1, 2, 3, 4, 6]),
    memories=st.sampled_from([*MEMORIES]),
    inputs=st.sampled_from(["free", "sharded"]),
)


@some_tiles
def test_each_tile_is_made_once_from_tiles_that_are_there(graph, devices, memories, inputs):
    tiled = tiled_of(graph, devices, memories, inputs=inputs)
    verify_tiles(tiled)
    assert sorted(op.into for op in tiled.ops) == [*range(len(tiled.tiles))]
    for name, blocks in tiled.outputs.items():
        buffer = tiled.program.buffers[tiled.program.outputs[name]]
        for device, block in enumerate(blocks):
            assert block.box == buffer.box(tiled.program.mesh, device)
            assert tiled.tiles[block.tile].memory == tiled.memories[device]


@some_tiles
def test_operations_read_their_own_memory_unless_they_bring_blocks(
    graph, devices, memories, inputs
):
    tiled = tiled_of(graph, devices, memories, inputs=inputs)
    for op in tiled.ops:
        memory = tiled.tiles[op.into].memory
        assert memory == tiled.memories[op.device]
        if op.kind is not OpKind.ASSEMBLE:
            assert all(tiled.tiles[tile].memory == memory for tile in op.sources)


@some_tiles
def test_every_device_has_a_share_in_every_step_that_computes(graph, devices, memories, inputs):
    tiled = tiled_of(graph, devices, memories, inputs=inputs)
    steps = tiled.program.steps
    wanted = [
        (number, device)
        for number, step in enumerate(steps)
        if isinstance(step, Compute | Generate | ReduceScatter)
        for device in range(devices)
    ]
    assert [(share.step, share.device) for share in tiled.shares] == wanted
    for share in tiled.shares:
        if share.tile is not None:
            tile = tiled.tiles[share.tile]
            buffer = tiled.program.buffers[steps[share.step].into]
            assert (tile.tensor, tile.memory) == (buffer.tensor, tiled.memories[share.device])


@some_tiles
@pytest.mark.parametrize("room", [None, 0, 400, 4000])
def test_regions_are_complete_and_in_order(graph, devices, memories, inputs, room):
    """Programs, tiles and regions hold before and after every pass over them."""
    tiled = tiled_of(graph, devices, memories, inputs=inputs)
    tiled.program.verify()
    verify_tiles(tiled)
    if room is not None:
        tiled = finish_early(tiled)
        verify_tiles(tiled)
    regions = regions_of(tiled, room=room)
    verify_regions(tiled, regions)
    if room is not None:
        regions = while_there(tiled, regions)
        verify_regions(tiled, regions)
    done = {op.into for region in regions for op in region.ops}
    for op in tiled.ops:
        if op.into not in done and op.kind is not OpKind.LOAD:  # such as a mask that nobody reads
            assert op.kind is OpKind.FILL or tiled.tiles[op.into].types[0].kind in "biu"
    for region in regions:
        own = [tiled.tiles[tile] for tile in (*region.reads, *region.writes)]
        here = sum(tile.nbytes for tile in own if tile.memory == region.memory)
        assert most_held(tiled, regions).bytes >= here


def test_what_cannot_be_carried_out_is_told():
    text = "input X[i: 4]\nY[i] <- exp(X[i])\nZ[i] <- sin(Y[i])\noutput Z"
    tiled = tiled_of(ed.parse(text), 1, "one")
    with pytest.raises(PlanError, match=r"where it stands: compute Z\[0:4\] from Y"):
        verify_tiles(replace(tiled, ops=(tiled.ops[0], *tiled.ops[:0:-1])))
    with pytest.raises(PlanError, match="nothing makes Z"):
        verify_tiles(replace(tiled, ops=tiled.ops[:-1]))
    [region] = regions_of(tiled)
    assert show_regions(tiled, [region]).splitlines() == [
        "region 0 in memory 0: X[0:4] -> Z[0:4]",
        "  compute Y[0:4] from X[0:4]",
        "  compute Z[0:4] from Y[0:4]",
    ]
    with pytest.raises(PlanError, match="this cannot run where it stands:\nregion 0"):
        verify_regions(tiled, [replace(region, reads=())])
    with pytest.raises(PlanError, match="no region makes Z"):
        verify_regions(tiled, [])


@some_tiles
@pytest.mark.parametrize("room", [0, 400, 4000])
def test_regions_fit_where_operations_do(graph, devices, memories, inputs, room):
    tiled = finish_early(tiled_of(graph, devices, memories, inputs=inputs))
    for region in regions_of(tiled, room=room):
        own = [op for op in region.ops if tiled.tiles[op.into].types[0].kind not in "biu"]
        own = [op for op in own if op.kind is not OpKind.FILL]  # those may be done once more
        read = {tile for op in own for tile in op.sources}.intersection(region.reads)
        taken = sum(tiled.tiles[tile].nbytes for tile in (*read, *region.writes))
        assert taken <= room or len(own) <= 1


@some_tiles
def test_finishing_early_keeps_all_operations_and_their_order(graph, devices, memories, inputs):
    check_finishing_early(tiled_of(graph, devices, memories, inputs=inputs))


@pytest.mark.parametrize("case", CASES)
def test_finishing_early_what_devices_compute_alike(case):
    """Results that lie everywhere are assembled from shares, and then from blocks of that."""
    check_finishing_early(tiles_of(program_of(CASES[case]({"a": 2, "b": 3}))))


def check_finishing_early(tiled):
    early = finish_early(tiled)
    assert sorted(op.into for op in early.ops) == sorted(op.into for op in tiled.ops)
    done: set[int] = set()
    for op in early.ops:
        assert done.issuperset(op.sources)
        done.add(op.into)


def test_updates_follow_their_gradients():
    step = models.ffnn(4, 5, 6, 7, optimizer="adam")
    tiled = finish_early(tiles_of(program_of(ed.plan(step, 1))))
    order = [tiled.tiles[op.into].tensor for op in tiled.ops if op.kind is not OpKind.LOAD]
    at = order.index("grad_W2")
    assert set(order[at + 1 : at + 4]) == {"new_W2_mean", "new_W2_square", "new_W2"}
    assert order.index("grad_W1") > at + 3
    assert order.index("grad_H") > at + 3


@pytest.mark.parametrize("devices", [2, 4])
def test_what_reads_a_weight_follows_while_it_is_there(devices):
    step = models.ffnn(8, 64, 32, 64, optimizer="adam")
    strategy = {"labels": {"c": ["c"], "*": ["h"]}}
    tiled = finish_early(tiled_of(step, devices, "one", strategy=strategy))
    regions = while_there(tiled, regions_of(tiled, 1, room=10**9))
    readers = defaultdict(list)
    for region in regions:
        for tile in region.reads:
            if tiled.tiles[tile].tensor == "W2":
                readers[tile].append(region.number)
    assert len(readers) == devices
    for numbers in readers.values():
        _, *backward = numbers
        assert backward == [backward[0], backward[0] + 1]


INDICES = """
input E[v: 4, a: 8], ids[b: 6] int64, X[b: 6, a: 8]
J[b] <- ids[b] + 1
K[b] <- J[b] * J[b]
Z[b,a] <- E[J[b], a] * 2
Y[c: 9 = K[b], a] <- sum X[b,a] + Z[b,a]
output Y
"""


@given(
    devices=st.integers(1, 6),
    memories=st.sampled_from([*MEMORIES]),
    inputs=st.sampled_from(["free", "sharded"]),
    strategy=st.sampled_from([None, ["a"], ["b"]]),
)
def test_computed_indices_come_from_an_earlier_region(devices, memories, inputs, strategy):
    tiled = tiled_of(ed.parse(INDICES), devices, memories, inputs=inputs, strategy=strategy)
    lookups = [each for each in lookups_of(tiled, tiled.ops) if is_computed(tiled, each)]
    assert len({tiled.tiles[lookup.index.tile].tensor for lookup in lookups}) == 2
    reads = {op.into: region.reads for region in regions_of(tiled) for op in region.ops}
    assert all(lookup.index.tile in reads[lookup.op.into] for lookup in lookups)


def test_devices_of_one_memory_share_what_is_equal():
    graph = ed.parse("input X[i: 4, j: 4]\nZ[i,j] <- X[i,j] + 1\nW[i] <- sum Z[i,j]\noutput W")
    counts = {
        memories: sum(
            op.kind is OpKind.LOAD for op in tiled_of(graph, 4, memories, pin={"X": {}}).ops
        )
        for memories in MEMORIES
    }
    assert counts == {"one": 1, "two": 2, "each": 4}


CONFIG = Config(
    vocabulary=40, width=16, layers=4, heads=4, kv_heads=2, head_size=4, hidden=24, positions=128
)
LLAMAS = {"prefill": lambda c: prefill_graph(c, 1, 8), "step": lambda c: step_graph(c, 2, 16)}


@pytest.mark.long("4-step")
@pytest.mark.parametrize("kind", LLAMAS)
@pytest.mark.parametrize("devices", [1, 4])
def test_more_layers_are_more_of_the_same_regions(kind, devices):
    torch = pytest.importorskip("eindecomp.engines.torch.engine", reason="torch is not installed")
    kinds, counts = [], []
    for layers in (3, 4):
        plan = ed.plan(LLAMAS[kind](replace(CONFIG, layers=layers)), devices)
        ready = torch.TorchProgram(plan, torch.TorchEngine(device="cpu")).ready
        kinds.append(len({code.key for code in ready.codes}))
        counts.append(len(ready.codes))
    assert kinds[0] == kinds[1]
    assert counts[0] < counts[1]
