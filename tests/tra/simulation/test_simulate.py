"""Laws of the simulator: against the model device by device, by hand, and at its limits."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import numpy as np
import pytest
from by_device import ByDevice, tile_sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.graph.work import tile_operations
from eindecomp.layout.boxes import volume
from eindecomp.layout.cut import Span
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.collectives import levels_of
from eindecomp.planner.costs.price import PriceInSeconds
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Gathered,
    Generate,
    Load,
    Move,
    ReduceScatter,
    pattern_of,
)
from eindecomp.tra.simulation.durations import shared_volumes
from eindecomp.tra.simulation.network import Network, gather_phases, move_phases
from eindecomp.tra.simulation.simulate import simulate_program
from pending_plans import CASES

DIRECT, RING = Network("direct", "direct"), Network("ring", "ring")
seeds = st.integers(0, 2**32)
meshes = st.sampled_from(
    [{"n": 2, "a": 2}, {"n": 3}, {"n": 2, "m": 2, "a": 2, "b": 2}, {"n": 2, "a": 3}, {"a": 4}]
)
networks = st.builds(
    Network,
    st.sampled_from(["ring", "doubling", "direct"]),
    st.sampled_from(["direct", "ring", "doubling"]),
    st.sampled_from(["device", "node"]),
)


def machine(flops=1e6, memory=1e7, outer=1e3, inner=1e4, latency=1e-3):
    """Two levels: axes n and m between nodes, a and b inside."""
    between = dict.fromkeys("nm", outer)
    return ed.Machine(
        flops=flops,
        memory_bandwidth=memory,
        bandwidth=between | dict.fromkeys("ab", inner),
        latency=dict.fromkeys("nm", latency) | dict.fromkeys("ab", latency / 10),
    )


def random_program(seed, mesh):
    """The program of a random plan, now and then not of the best one."""
    rng = np.random.default_rng(seed)
    graph = random_graph(seed, tree=False, most=4)
    inputs = str(rng.choice(["free", "sharded"]))
    label = str(rng.choice(sorted({label for v in graph.vertices.values() for label in v.labels})))
    strategy = [label] if rng.random() < 0.5 else None
    pieces = str(rng.choice(["balanced", "ceil"]))
    try:
        plan = ed.plan(
            graph, mesh=mesh, inputs=inputs, strategy=strategy, pieces=pieces, time_limit=1
        )
    except ed.PlanError:
        plan = ed.plan(graph, mesh=mesh, inputs=inputs, time_limit=1)
    return plan, program_of(plan)


@pytest.mark.long
@settings(max_examples=60)
@given(seed=seeds, mesh=meshes, overlap=st.booleans())
def test_all_devices_at_once_are_as_one_by_one(seed, mesh, overlap):
    _, program = random_program(seed, mesh)
    found = simulate_program(program, machine(), DIRECT, overlap=overlap)
    wanted = ByDevice(program, machine(), overlap=overlap)
    assert found.seconds == pytest.approx(wanted.last)
    assert found.computing == pytest.approx(np.array(wanted.computing))


@pytest.mark.long
@settings(max_examples=60)
@given(seed=seeds, mesh=meshes, network=networks)
def test_links_carry_what_the_plan_moves(seed, mesh, network):
    plan, program = random_program(seed, mesh)
    found = simulate_program(program, machine(), network, overlap=1)
    assert found.bytes_moved == plan.traffic.total == program.moved
    assert sum(int(level.sent.sum()) for level in found.levels) == found.bytes_moved
    received = sum(level.received for level in found.levels)
    if network.reduce == "direct":  # rings pass on more to some than rows say, and less to others
        rows = [program.on(device).received for device in range(program.devices)]
        assert np.broadcast_to(received, program.devices).tolist() == rows


@pytest.mark.parametrize("case", CASES)
def test_links_carry_what_waits(case):
    program = program_of(CASES[case]({"n": 2, "a": 3}))
    found = simulate_program(program, machine(), DIRECT, overlap=1)
    assert found.bytes_moved == program.moved
    received = sum(level.received for level in found.levels)
    rows = [program.on(device).received for device in range(program.devices)]
    assert np.broadcast_to(received, program.devices).tolist() == rows


@pytest.mark.long
@settings(max_examples=60)
@given(seed=seeds, mesh=meshes, network=networks, overlap=st.sampled_from([0, 0.3, 1]))
def test_seconds_add_up_and_are_no_less_than_any_part(seed, mesh, network, overlap):
    plan, program = random_program(seed, mesh)
    found = simulate_program(program, machine(), network, overlap=overlap)
    total = found.computing + found.exposed + found.idle
    assert total == pytest.approx(np.full(program.devices, found.seconds))
    assert min(found.exposed.min(), found.idle.min()) >= -1e-12
    assert all(step.seconds >= 0 for step in found.critical_path)
    assert sum(step.seconds for step in found.critical_path) == pytest.approx(found.seconds)
    assert all(level.busy <= found.seconds * (1 + 1e-9) for level in found.levels)
    price = PriceInSeconds(program.mesh, machine())
    least = 0.0
    for name in plan.decisions:
        vertex = plan.graph[name]
        items = tuple(plan.graph[source].dtype.itemsize for source in vertex.inputs)
        least += price.least(vertex, view_of(plan.graph, vertex), items)
    assert found.seconds >= least * (1 - 1e-9)


@settings(max_examples=40)
@given(seed=seeds, mesh=meshes, network=networks)
def test_with_infinite_links_the_longest_path_of_kernels_remains(seed, mesh, network):
    _, program = random_program(seed, mesh)
    endless = machine(memory=inf, outer=inf, inner=inf, latency=0.0)
    found = simulate_program(program, endless, network, overlap=1)
    longest = longest_path(program, endless.flops, combines=network.reduce == "direct")
    assert found.seconds >= longest * (1 - 1e-9)
    direct = simulate_program(program, endless, DIRECT, overlap=1)
    assert direct.seconds == pytest.approx(ByDevice(program, endless).last)


def longest_path(program, flops, *, combines):
    """Of kernel calls and combinations, where whoever exchanges anything waits for the others."""
    free, ready, last = [0.0] * program.devices, {}, 0.0
    rows = [program.on(device) for device in range(program.devices)]
    for number, step in enumerate(program.steps):
        own = [row.steps[number] for row in rows]
        match step:
            case Load() | Generate():
                ready |= {
                    (step.into, d): free[d] * isinstance(step, Generate) for d in range(len(rows))
                }
            case Compute():
                for d, mine in enumerate(own):
                    reads = [ready[r.buffer, d] for r in step.reads if r is not None]
                    work = tile_operations(
                        program.computed_by(step).op, tile_sizes(program, step, mine)
                    )
                    free[d] = ready[step.into, d] = max([free[d], *reads]) + work / flops
            case Move() | ReduceScatter() | AllGather():
                source = getattr(step, "source", None)
                source, into = (step.buffer,) * 2 if source is None else (source, step.into)
                before = [ready[source, d] for d in range(len(rows))]
                for d, mine in enumerate(own):
                    peers = {
                        block.peer for block in (*mine.exchange.receives, *mine.exchange.sends)
                    }
                    after = max(before[peer] for peer in (d, *peers))
                    if isinstance(step, ReduceScatter) and peers and combines:
                        numbers = len(program.buffers[source].types) * volume(mine.box)
                        after += (len(mine.members) - 1) * numbers / flops
                    ready[into, d] = after
        last = max([last, *free, *ready.values()])
    return last


@settings(max_examples=40)
@given(seed=seeds, mesh=meshes, network=networks)
def test_with_infinite_computing_the_fullest_link_is_the_least(seed, mesh, network):
    _, program = random_program(seed, mesh)
    endless = machine(flops=inf, memory=inf)
    found = simulate_program(program, endless, network, overlap=1)
    assert not found.computing.any()
    for level, bandwidth in zip(found.levels, dict.fromkeys((1e3, 1e4)), strict=False):
        if len(found.levels) == 1 and "a" in mesh:
            bandwidth = 1e4
        shared = network.cards == "node" and level is not found.levels[-1]
        most = np.mean if shared else np.max
        fullest = max(most(level.received), most(level.sent))
        assert found.seconds >= fullest / bandwidth * (1 - 1e-9)


def random_cut(rng):
    """A 16 × 16 matrix, cut by some of four axes in any order."""
    axes = rng.permutation(4).tolist()
    first, last = sorted(rng.integers(0, 5, 2).tolist())
    own = axes[:first], axes[first:last]
    return tuple(Span(tuple(each), 16, 1, 0, 16) for each in own)


@pytest.mark.parametrize("rounds", ["doubling", "ring"])
@pytest.mark.parametrize("seed", range(40))
def test_the_objective_prices_the_phases_of_a_move(seed, rounds):
    """From any layout to any other, and the same whether a gather is seen as one or not."""
    rng = np.random.default_rng(seed)
    mesh = Mesh(tuple("nmab"), (2, 2, 2, 2))
    held = random_cut(rng)
    needed = random_cut(rng) if seed % 2 else tuple(s._replace(axes=s.axes[:1]) for s in held)
    described = replace(machine(), rounds=rounds)
    levels = levels_of(mesh, described)
    tilings = Tiling(held), Tiling(needed)
    phases = move_phases(mesh, levels, *tilings, 4, rounds)
    if isinstance(pattern := pattern_of(mesh, *tilings), Gathered):
        own = shared_volumes(mesh, held, needed) * 4
        gathered = gather_phases(mesh, levels, pattern.axes, own, rounds)
        for phase, other in zip(phases, gathered, strict=True):
            assert phase.rounds == other.rounds
            assert (phase.received == other.received).all()
    seconds = sum(
        level.seconds("all_gather", phase.received[k].max(), phase.rounds)
        for phase in phases
        for k, level in enumerate(levels)
        if phase.received[k].any()
    )
    price = PriceInSeconds(mesh, described).fetch([held], [needed], 4)
    assert price[0, 0] == pytest.approx(seconds)


@pytest.mark.parametrize("rounds", ["doubling", "ring"])
@pytest.mark.parametrize("strategy", [["i"], ["j"], ["k"], None])
@pytest.mark.parametrize("mesh", [{"n": 2, "m": 2, "a": 2, "b": 2}, {"n": 4, "a": 8}])
def test_the_objective_is_what_is_simulated_on_unloaded_links(mesh, strategy, rounds):
    sizes = {"i": 512, "j": 256, "k": 512}
    described = replace(machine(), rounds=rounds)
    plan = matmul(strategy, mesh, **sizes, objective="time", machine=described)
    assert ed.simulate(plan).seconds == pytest.approx(plan.cost, rel=0.05)


def matmul(strategy, mesh, i=8, j=8, k=8, **options):
    n = {"i": i, "j": j, "k": k}
    text = f"input X[i: {n['i']}, j: {n['j']}], Y[j, k: {n['k']}]\n"
    graph = ed.parse(f"{text}Z[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    return ed.plan(graph, mesh=mesh, strategy=strategy, inputs="sharded", **options)


ENDLESS = {"flops": inf, "memory": inf}


@pytest.mark.parametrize(
    ("mesh", "network", "seconds"),
    [
        # Y, 256 bytes, is gathered in quarters: 3 rounds of 64 bytes around a ring inside a node.
        ({"a": 2, "b": 2}, RING, 3 * (1e-4 + 64 / 1e4)),
        ({"a": 2, "b": 2}, Network(), 2 * 1e-4 + 3 * 64 / 1e4),
        ({"a": 2, "b": 2}, DIRECT, 1e-4 + 3 * 64 / 1e4),
        # Between nodes first, one round of 64 bytes, then 128 bytes inside.
        ({"n": 2, "a": 2}, Network(), 1e-3 + 64 / 1e3 + 1e-4 + 128 / 1e4),
        # Two blocks come from the other node, beside the one from inside.
        ({"n": 2, "a": 2}, DIRECT, 1e-3 + 128 / 1e3),
    ],
)
def test_an_all_gather_by_hand(mesh, network, seconds):
    plan = matmul(["i"], mesh)
    assert plan.cost == 4 * 192
    found = simulate_program(program_of(plan), machine(**ENDLESS), network)
    assert found.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("mesh", "network", "seconds"),
    [
        # Partial results of 256 bytes; each device receives 3 blocks of 64 bytes.
        ({"a": 2, "b": 2}, DIRECT, 1e-4 + 192 / 1e4),
        ({"a": 2, "b": 2}, RING, 3 * (1e-4 + 64 / 1e4)),
        ({"n": 2, "a": 2}, DIRECT, 1e-3 + 128 / 1e3),
        # Inside nodes first, halves, then a quarter between them.
        ({"n": 2, "a": 2}, RING, 1e-4 + 128 / 1e4 + 1e-3 + 64 / 1e3),
    ],
)
def test_a_reduction_by_hand(mesh, network, seconds):
    plan = matmul(["j"], mesh)
    assert plan.cost == 4 * 192
    found = simulate_program(program_of(plan), machine(**ENDLESS), network)
    assert found.seconds == pytest.approx(seconds)


PRODUCTS = """
input A[i: 64, j: 64], B[j, k: 64], C[k, l: 64]
Y[i,k] <- sum A[i,j] * B[j,k]
Z[i,l] <- sum Y[i,k] * C[k,l]
"""


def products(rest):
    """Two products on two devices, for which each device fetches half of B and half of C."""
    pin = {"A": {"i": 2}, "B": {"j": 2}, "C": {"k": 2}}
    graph = ed.parse(PRODUCTS + rest)
    plan = ed.plan(graph, mesh={"a": 2}, strategy=["i"], inputs="sharded", pin=pin, rewrite=False)
    return program_of(plan)


@pytest.mark.parametrize("each", [3.0, 0.5])
def test_communication_runs_beside_kernels_as_far_as_memory_allows(each):
    """A product takes one second; B and C take `each`."""
    block = 32 * 64 * 4
    work = 2 * 32 * 64 * 64
    machine = ed.Machine(flops=work, memory_bandwidth=inf, bandwidth=block / each)
    # A larger tensor later on: C follows B on the link, while Y is computed.
    roomy = products("T[i,l,m: 8] <- Z[i,l]\noutput T")
    found = simulate_program(roomy, machine, overlap=1)
    assert found.seconds == pytest.approx(max(each + 1, 2 * each) + 1)
    assert found.computing == pytest.approx(np.full(2, 2.0))
    # C must wait until B is freed.
    narrow = products("output Z")
    assert simulate_program(narrow, machine, overlap=1).seconds == pytest.approx(2 * each + 2)
    # Without overlap, one step follows another.
    apart = simulate_program(roomy, machine)
    assert apart.seconds == pytest.approx(2 * each + 2)
    assert apart.exposed == pytest.approx(np.full(2, 2 * each))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_communication_goes_on_beside_a_machines_share_of_computing(share):
    """B takes three seconds before the first product, C three of which it hides one's share."""
    work, block = 2 * 32 * 64 * 64, 32 * 64 * 4
    machine = ed.Machine(work, inf, block / 3.0, overlap=share)
    found = simulate_program(products("T[i,l,m: 8] <- Z[i,l]\noutput T"), machine)
    assert found.seconds == pytest.approx(3 + 1 + (3 - share) + 1)


@settings(max_examples=60)
@given(seed=seeds, mesh=meshes, network=networks)
def test_without_overlap_all_that_alike_devices_do_adds_up(seed, mesh, network):
    _, program = random_program(seed, mesh)
    found = simulate_program(program, machine(), network, overlap=0)
    if all(np.ptp(r.begin) == np.ptp(r.end) == 0 for r in found.records):
        assert found.seconds == pytest.approx(sum(float(r.seconds.max()) for r in found.records))


@pytest.mark.parametrize(("cards", "seconds"), [("device", 8 + 8), ("node", 4 + 4)])
def test_the_devices_of_a_node_share_its_card_if_asked(cards, seconds):
    # One number of 4 bytes: device 0 combines it, receiving two from the other node, and sends it
    # to all others, two of them there. Device 1 leaves its half of a shared card to device 0.
    graph = ed.parse("input X[i: 64]\nZ[] <- sum X[i]\noutput Z")
    program = program_of(ed.plan(graph, mesh={"n": 2, "a": 2}))
    slow = machine(**ENDLESS, latency=0.0, outer=1.0)
    found = simulate_program(program, slow, Network("direct", "direct", cards), overlap=1)
    assert found.seconds == pytest.approx(seconds)


def test_a_machine_must_know_the_axes_and_the_mesh_be_of_a_size():
    plan = matmul(["i"], {"x": 2})
    with pytest.raises(ed.PlanError, match="no bandwidth for mesh axis 'x'"):
        ed.simulate(plan, machine())
    with pytest.raises(ed.InputError, match="needs a machine"):
        ed.simulate(plan)
    with pytest.raises(ed.InputError, match="gather 'tree' is not one of doubling, ring, direct"):
        ed.simulate(plan, "cpu-cluster", gather="tree")
    with pytest.raises(ed.InputError, match="takes a Plan"):
        ed.simulate(plan.graph, "cpu-cluster")


def test_one_device_computes_alone():
    plan = matmul(None, {})
    found = ed.simulate(plan, "cpu-cluster")
    assert found.seconds == found.computing[0] > 0
    assert found.levels == ()
    assert "on 1 devices; " in str(found)


@pytest.mark.parametrize("devices", [64, 1024])
def test_many_devices_do_as_few_do(devices):
    """Equal shares of a product whose operand is gathered: by hand, whatever the number."""
    side = 1024
    plan = matmul(["i"], {"a": devices}, i=side, j=side, k=side)
    found = simulate_program(program_of(plan), machine(**ENDLESS), RING)
    block = 4 * side * side // devices
    assert found.seconds == pytest.approx((devices - 1) * (1e-4 + block / 1e4))
    assert prod(plan.mesh.sizes) == devices
