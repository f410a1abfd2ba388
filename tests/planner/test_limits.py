"""What is asked for beside the objective: pins, memory, machines; and the bounds behind plans."""

from __future__ import annotations

import random
import subprocess
import sys
from math import inf, prod
from pathlib import Path

import numpy as np
import pytest
from brute_bytes import brute_bytes, plans
from hypothesis import assume, given
from hypothesis import strategies as st
from random_graphs import random_graph
from simulate import simulate
from transformer import small_transformer

import eindecomp as ed
from eindecomp.planner import minimize_bound, options
from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.planner.search import relaxation as relaxing
from eindecomp.planner.search.all_at_once import AllAxes
from eindecomp.planner.search.relaxation import relax
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.mesh import Mesh
from eindecomp.planner.space.pin import pinned_cuts
from eindecomp.store.plan_file import from_json, to_json

CHAIN = ed.parse(
    "input A[i: 64, j: 64], B[j, k: 64], C[k, l: 64]\n"
    "Z[i,k] <- sum A[i,j] * B[j,k]\nY[i,l] <- sum Z[i,k] * C[k,l]\nS[l] <- sum Y[i,l]\noutput S"
)
MAP = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- exp(X[i,j])\noutput Z")


@pytest.mark.parametrize("devices", [8, 16, 64])
@pytest.mark.parametrize(
    "pin", [{"Z": {"k": 8}}, {"Z": {}}, {"Z": {"i": 2, "k": 4}}, {"Y": {"l": 8}}, {"A": {"j": 2}}]
)
def test_a_pinned_tensor_lies_as_it_is_pinned(devices, pin):
    plan = ed.plan(CHAIN, devices, pin=pin, rewrite=False, time_limit=2)
    assert plan.cost >= ed.plan(CHAIN, devices, rewrite=False).cost
    (name, wanted), *_ = pin.items()
    cut = plan.given[name] if name == "A" else plan.decisions[name].home
    pieces = {
        label: 2 ** bin(span.axes | span.inner).count("1")
        for label, span in zip(CHAIN[name].labels, cut, strict=True)
    }
    assert pieces == dict.fromkeys(pieces, 1) | wanted


@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([2, 3, 4, 6, 8]),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_any_result_can_be_pinned_in_any_number_of_pieces(seed, devices, inputs):
    rng = random.Random(seed)
    graph = random_graph(seed, tree=False)
    name = rng.choice([v.name for v in graph.vertices.values() if v not in graph.inputs])
    pieces, left = {}, devices
    for label, size in graph[name].sizes.items():
        pieces[label] = rng.choice([n for n in range(1, size + 1) if left % n == 0])
        left //= pieces[label]
    found = ed.plan(graph, devices, pin={name: pieces}, inputs=inputs, rewrite=False)
    home = found.decisions[name].home
    cut = [prod(found.mesh.sizes[a] for a in range(9) if (s.axes | s.inner) >> a & 1) for s in home]
    assert cut == list(pieces.values())
    assert simulate(found).total == found.cost
    assert found.bound <= found.cost
    hurried = ed.plan(
        graph, devices, pin={name: pieces}, inputs=inputs, rewrite=False, time_limit=0
    )
    assert hurried.bound <= found.cost


def test_a_result_pinned_in_fewer_pieces_is_computed_several_times():
    """As few times as can be: all devices take part in a sum, and end with all of it."""
    found = ed.plan(MAP, 4, pin={"Z": {"i": 2}}, rewrite=False)
    assert (found.cost, found.parts["Z"]["i"]) == (0, 2)
    assert ed.plan(MAP, 4, pin={"Z": {}}, inputs="sharded", rewrite=False).cost > 0
    product = ed.parse("input X[i: 8, j: 8], W[j, k: 8]\nY[i,k] <- sum X[i,j] * W[j,k]\noutput Y")
    assert ed.plan(product, 4, pin={"Y": {}}).parts["Y"] == {"i": 1, "k": 1, "j": 4}


def test_a_merged_dimension_can_be_pinned():
    graph = ed.parse("input X[h: 8, d: 4]\nE[h,d] <- exp(X[h,d])\nY[(h, d)] <- E[h,d]\noutput Y")
    assert ed.plan(graph, 4, pin={"Y": {"h_d": 4}}).cost == 0


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ({"X": {"i": ["axis0", "axis0"]}}, "appears twice"),
        ({"X": {"i": None}}, "needs pieces or axes along 'i'"),
        ({"X": {"i": 16}}, "cannot be cut 16 ways"),
        ({"X": {"i": "gpu"}}, r"no mesh axis 'gpu' to cut X\[i,j\] along 'i'"),
        ({"X": {"i": 3}}, r"no axes of the mesh .* cut X\[i,j\] as {'i': 3}"),
        ({"X": {"i": 4, "j": 4}}, "no axes of the mesh"),
        ({"X": {"i": "axis0", "j": "axis0"}}, "no axes of the mesh"),
        ({"X": {"q": 2}}, "has no label 'q'"),
        ({"Q": {"i": 2}}, "pin: the graph has no tensor 'Q'"),
        ({"X": ["i"]}, "label: pieces or axis"),
        (3, "a pin is"),
    ],
)
def test_pins_that_cannot_be_are_named(pin, message):
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(MAP, 4, pin=pin)


def test_what_rewriting_removes_or_nobody_keeps_cannot_be_pinned():
    graph = ed.parse(
        "input X[s: 8, t: 8]\nM[s: 8, t: 8] <- fill s >= t\nA[s,t] <- exp(X[s,t])\n"
        "Z[s,t] <- A[s,t] * M[s,t]\noutput Z"
    )
    with pytest.raises(ed.PlanError, match=r"rewriting removes the tensor 'A'; use rewrite=False"):
        ed.plan(graph, 4, pin={"A": {"s": 4}})
    assert ed.plan(graph, 4, pin={"A": {"s": 4}}, rewrite=False).cost == 0
    with pytest.raises(ed.PlanError, match=r"pin: M\[s,t\] is a fill"):
        ed.plan(graph, 4, pin={"M": {"s": 4}}, rewrite=False)
    small = ed.parse("input X[i: 8, j: 2]\nZ[i,j] <- exp(X[i,j])\noutput Z")
    with pytest.raises(ed.PlanError, match="cannot be cut 4 ways, by a·b, along 'j' of 2"):
        ed.plan(small, mesh={"a": 2, "b": 2}, pin={"X": {"j": ["a", "b"]}})


def test_pins_are_looked_up_in_no_time_on_any_mesh():
    """Twenty axes have millions of groups, of which most make what is not asked for."""
    mesh = Mesh.of_devices(1 << 20)
    graph = ed.parse("input X[i: 4096, j: 4096, k: 4096]\nZ[i,j,k] <- exp(X[i,j,k])\noutput Z")
    for pin in ({"i": 32, "j": 32, "k": 3}, {"i": 32, "j": 32, "k": 2048}):
        with pytest.raises(ed.PlanError, match="no axes of the mesh"):
            pinned_cuts(graph, mesh, {"X": pin})
    with pytest.raises(ed.PlanError, match="too many ways"):
        pinned_cuts(graph, mesh, {"X": {"i": 32, "j": 32, "k": 32}})
    [cut] = pinned_cuts(graph, mesh, {"X": {"j": mesh.names[3:6]}})["X"]
    assert [span.axes for span in cut] == [0, 0b111000, 0]


def test_a_pin_forbids_whatever_reading_costs():
    """With stored inputs an assignment has a cost beside that of a home which is ruled out."""
    graph = ed.parse("input X[i: 8, j: 8], W[j, k: 8]\nY[i,k] <- sum X[i,j] * W[j,k]\noutput Y")
    found = ed.plan(graph, 4, pin={"Y": {"k": 4}}, inputs="sharded", strategy=["k"])
    assert found.cost == 4 * 64 * 3
    with pytest.raises(ed.PlanError, match="agrees with the pins"):
        ed.plan(graph, 4, pin={"Y": {"k": 4}}, inputs="sharded", strategy=["i"])


def test_an_input_that_several_read_alike_is_held_once():
    graph = ed.parse(
        "input X[i: 64, j: 64]\nA[i] <- sum X[i,j]\nB[i] <- max X[i,j]\nC[i] <- min X[i,j]\n"
        "output A, B, C"
    )
    quarter = 64 * 64 * 4 // 4
    assert ed.plan(graph, 4, memory=quarter + 400).cost == 0
    with pytest.raises(
        ed.PlanError, match=r"found no plan .* at step 3 of 3, which computes C\[i\]"
    ):
        ed.plan(graph, 4, memory=quarter + 4)


def test_less_memory_never_costs_less():
    costs = [ed.plan(CHAIN, 8, memory=memory).cost for memory in ("50KB", "40KB", "32KB", "22KB")]
    assert costs == sorted(costs)
    assert costs[0] == ed.plan(CHAIN, 8).cost


def test_what_is_missing_is_said():
    with pytest.raises(ed.PlanError, match=r"1\.0 KiB of memory per device at step .* are missing"):
        ed.plan(CHAIN, 8, memory=1024)


@pytest.mark.parametrize("memory", ["lots", "70XB", -1, 1.5, 1e6, np.float64(1e6), True])
def test_what_is_no_amount_of_memory_is_named(memory):
    with pytest.raises(
        ed.PlanError, match="memory must be a number of bytes or a text such as '70GB'"
    ):
        ed.plan(MAP, 4, memory=memory)


def test_a_slow_link_is_avoided():
    # Heads over the slow axis and sequence within it would move data between nodes.
    graph = ed.parse(
        "input X[s: 1024, a: 512], W[a, f: 512], V[f, a]\n"
        "H[s,f] <- sum X[s,a] * W[a,f]\nY[s,a] <- sum H[s,f] * V[f,a]\noutput Y"
    )
    machine = ed.Machine(
        1e12, 1e12, bandwidth={"node": 1e6, "gpu": 1e12}, mesh={"node": 2, "gpu": 4}
    )
    plan = ed.plan(graph, objective="time", machine=machine)
    assert plan.gap < 1e-6
    assert plan.traffic.total == 0


def test_computing_twice_where_that_is_faster():
    graph = ed.parse("input X[i: 6, j: 2]\nZ[i] <- sum X[i,j]\noutput Z")
    machine = ed.Machine(flops=1e12, memory_bandwidth=1e9, bandwidth=1e12)
    plan = ed.plan(graph, objective="time", mesh={"a": 4, "b": 3, "c": 2}, machine=machine)
    assert plan.cost == pytest.approx(1.2e-8)
    assert plan.bound <= plan.cost


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_relaxing_never_passes_the_optimum(seed, inputs):
    graph = random_graph(seed, tree=seed % 2 == 0)
    for sizes in ((2, 2), (4, 3), (6,), (2, 2, 2)):
        mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
        found = relax(graph, mesh, inputs, lambda *_: None, 10)
        assert found.bound <= brute_bytes(graph, sizes, inputs)


@pytest.mark.parametrize("cells", [1, 1 << 6, 1 << 18])
@given(seed=st.integers(0, 2**32), inputs=st.sampled_from(["free", "sharded"]))
def test_bounding_all_axes_at_once_never_passes_the_optimum(cells, seed, inputs):
    graph = random_graph(seed, tree=False)
    for sizes in ((3, 2), (6,), (2, 2)):
        assume(plans(graph, sizes) <= 3_000)
        mesh = Mesh(tuple("ab"[: len(sizes)]), sizes)
        whole = AllAxes.of(Search(graph, PriceInBytes(mesh), inputs))
        whole.bounding.levels = [cells]
        found = whole.tighten(inf, inf)
        least = brute_bytes(graph, sizes, inputs)
        assert whole.bound <= least <= found.cost
        assert cells < 1 << 18 or whole.bound == found.cost


def test_a_gradient_graph_on_uneven_pieces_is_proved():
    """Nothing of the sizes is a multiple of 3, and elimination alone is too wide."""
    text = str(small_transformer(2)).replace("output X2", "loss[] <- sum X2[b,s,a]**2\noutput loss")
    graph = ed.parse(text.replace("s: 6", "s: 8"))
    weights = [vertex.name for vertex in graph.inputs if vertex.name != "E"]
    found = ed.plan(ed.grad(graph, "loss", wrt=weights), 6)
    assert found.gap == 0
    assert simulate(found).total == found.cost


# Many choices


def summed(rank: int, *, shared: bool) -> ed.Graph:
    """A sum over many labels, of a given tensor or of one that others read, too."""
    labels = [f"a{k}" for k in range(rank)]
    own, size = ",".join(labels), ", ".join(f"{label}: 2" for label in labels)
    read, more = ("Y", f"Y[{own}] <- exp(X[{own}])\nM[] <- max Y[{own}]\n") if shared else ("X", "")
    outputs = "S, M, Y" if shared else "S"
    return ed.parse(f"input X[{size}]\n{more}S[] <- sum {read}[{own}]\noutput {outputs}")


@pytest.mark.parametrize("rank", [12, 30, 50])
@pytest.mark.parametrize("objective", ["bytes", "bound"])
def test_a_sum_over_many_labels_is_planned_at_once(rank, objective):
    plan = ed.plan(summed(rank, shared=False), 64, objective)
    assert plan.gap == 0
    assert plan.cost == (63 * 4 * 2 if objective == "bytes" else 2**rank + 63)
    assert "Proved optimal" in " ".join(plan.explain().split())


@pytest.mark.parametrize("options", [{}, {"strategy": ["a3"]}, {"strategy": "sqrt"}])
def test_what_cannot_be_listed_has_a_plan_and_a_modest_bound(options):
    plan = ed.plan(summed(30, shared=True), 64, time_limit=2, **options)
    assert plan.bound <= plan.cost
    assert prod(plan.parts["Y"].values()) == 64
    assert plan.parts["Y"]["a3"] == 2 or options != {"strategy": ["a3"]}


def test_what_the_papers_objective_cannot_list_is_named():
    with pytest.raises(ed.PlanError, match=r"Y\[a0,a1.*30 in all.* in 593,775 ways, too many"):
        ed.plan(summed(30, shared=True), 64, "bound")


def test_a_trimmed_list_of_choices_claims_no_more_than_is_so(monkeypatch):
    whole = ed.plan(CHAIN, 64, "bound")
    monkeypatch.setattr(minimize_bound, "MOST_CELLS", 20)
    trimmed = ed.plan(CHAIN, 64, "bound")
    assert trimmed.bound <= whole.cost <= trimmed.cost
    with pytest.raises(ed.PlanError, match="no plan was proved optimal"):
        ed.plan(CHAIN, 64, "bound", solver="exact")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_leaving_vertices_out_never_passes_the_optimum(seed, inputs, monkeypatch):
    graph = random_graph(seed, tree=seed % 2 == 0)
    for most in (2, 4):
        monkeypatch.setattr(relaxing, "_ROWS", (most,))
        for sizes in ((2, 2), (4, 3), (2, 2, 2)):
            mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
            found = relax(graph, mesh, inputs, lambda *_: None, 10)
            assert found.bound <= brute_bytes(graph, sizes, inputs)


def test_a_plan_comes_when_there_is_no_time_at_all():
    plan = ed.plan(CHAIN, 1 << 16, time_limit=0)
    assert plan.bound <= plan.cost
    assert {prod(parts.values()) for parts in plan.parts.values()} == {1 << 12, 1 << 16}


def test_auto_proves_what_exact_proves():
    """Five labels on 2 × 2 × 2 × 3 devices: 625 assignments of a vertex are looked at together."""
    graph = ed.parse(
        "input A[i: 24, j: 36, k: 12], B[k, l: 48, m: 12]\n"
        "C[i,j,l,m] <- sum A[i,j,k] * B[k,l,m]\nD[i,l] <- sum C[i,j,l,m]\n"
        "E[j,l] <- max C[i,j,l,m]\nF[i,j,l] <- D[i,l] * E[j,l]\nG[l,i] <- sum F[i,j,l]\noutput G"
    )
    proved = ed.plan(graph, 24, solver="exact", rewrite=False)
    assert ed.plan(graph, 24, rewrite=False).bound == proved.cost


# NumPy's numbers, and defaults


def test_numpys_numbers_are_numbers():
    for devices, limit in ((np.int64(8), np.float32(9)), (np.uint8(8), np.int32(9))):
        plan = ed.plan(CHAIN, devices, time_limit=limit, memory=np.int64(1 << 20))
        assert (plan.devices, plan.memory) == (8, 1 << 20)
    pinned = ed.plan(CHAIN, 4, pin={"Z": {"i": np.int64(2)}})
    assert pinned.pin == {"Z": {"i": 2}}
    assert from_json(to_json(pinned)).pin == pinned.pin
    rates = np.float32(1e12), np.int64(10**11), {"gpu": np.float64(1e9)}, np.float16(0)
    machine = ed.Machine(*rates, {"gpu": np.int8(4)})
    plan = ed.plan(CHAIN, np.int64(4), "time", machine=machine, mesh={"gpu": np.int64(4)})
    loaded = from_json(to_json(plan))
    assert (loaded.machine, loaded.cost) == (machine, plan.cost)
    parts = {"Z": {"i": np.int64(8)}, "Y": {"i": 8}, "S": {"i": np.int16(8)}}
    assert ed.cost(CHAIN, parts, np.int64(8), "bytes").total == 7 * 64 * 4


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[2J", "g" * 2000, 3, None, "\ud800"])
def test_axes_have_names_that_files_can_hold(name):
    message = "a mesh axis has a short name of printable characters"
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(MAP, mesh={name: 2})
    with pytest.raises(ed.PlanError, match=message):
        ed.Machine(1, 1, {name: 1})
    with pytest.raises(ed.PlanError, match=message):
        ed.Machine(1, 1, 1, mesh={name: 2})


def test_a_machines_axes_of_one_device_are_none():
    machine = ed.Machine(1, 1, 1, mesh={"node": 1, "gpu": 2})
    plan = ed.plan(MAP, machine=machine)
    assert plan.mesh.names == ("gpu",)
    assert from_json(to_json(plan)).machine == machine


def test_without_devices_there_is_one_for_each_core(monkeypatch):
    monkeypatch.setattr(options, "cores", lambda: 6)
    assert ed.plan(MAP).devices == 6
    assert ed.plan(MAP, mesh={"a": 4}).devices == 4
    assert ed.plan(MAP, machine="gpu-server").devices == 8
    assert ed.plan(MAP, machine="cpu-cluster").devices == 6
    assert ed.plan(MAP, 2, machine="gpu-server").devices == 2


# Interrupts


@pytest.mark.parametrize("options", [{}, {"memory": "30KB"}, {"objective": "bound"}])
def test_an_interrupt_ends_planning_at_any_time(options):
    events = []
    ed.plan(CHAIN, 8, on_event=events.append, **options)
    for number in range(len(events)):
        count = 0

        def interrupt(_, number=number):
            nonlocal count
            count += 1
            if count > number:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ed.plan(CHAIN, 8, on_event=interrupt, **options)
        assert count == number + 1


def test_a_signal_ends_planning_within_a_solve():
    """A search that gave what it had found would let planning go on for its whole time."""
    code = """
import os, signal, sys, threading
import eindecomp as ed
from transformer import small_transformer

def interrupt(event):
    if event.stage.startswith("axes"):
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()

try:
    ed.plan(small_transformer(2), 8, memory="30kB", time_limit=600, on_event=interrupt)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(  # noqa: S603 - a process of ours
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, timeout=300
    )
    assert done.stdout == b"interrupted\n", done.stderr.decode()
