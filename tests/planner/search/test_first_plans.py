"""What a search begins with: no plan is above what strategies and pins lead to in the same time."""

from __future__ import annotations

from typing import Any

import pytest

import eindecomp as ed
from eindecomp.errors import UnsolvedError
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import planned_views
from eindecomp.planner import minimize_movement
from eindecomp.planner.costs.price import PriceInSeconds, price_of
from eindecomp.planner.minimize_movement import Starts
from eindecomp.planner.options import described_machine, mesh_of
from eindecomp.planner.search.follow import assemble
from eindecomp.planner.search.search import Outcome, Search
from eindecomp.planner.space.choices import parts_by_label
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve.clock import planning_time

LAYER = """
input X[b: 8, s: 64, a: 64], WQ[a, h: 8, d: 16], WK[a,h,d], WV[a,h,d], WO[h,d,a]
input WU[a, f: 256], WD[f,a]
Q[b,s,h,d] <- sum X[b,s,a] * WQ[a,h,d]
K[b,s,h,d] <- sum X[b,s,a] * WK[a,h,d]
V[b,s,h,d] <- sum X[b,s,a] * WV[a,h,d]
T[b,h,s,t] <- sum Q[b,s,h,d] * K[b,t,h,d]
E[b,h,s,t] <- exp(T[b,h,s,t])
O[b,s,h,d] <- sum E[b,h,s,t] * V[b,t,h,d]
R[b,s,a]   <- sum O[b,s,h,d] * WO[h,d,a]
U[b,s,f]   <- sum R[b,s,a] * WU[a,f]
A[b,s,f]   <- relu(U[b,s,f])
Y[b,s,a]   <- sum A[b,s,f] * WD[f,a]
loss[]     <- sum Y[b,s,a] * Y[b,s,a]
output loss
"""


def training_step(text: str) -> ed.Graph:
    graph = ed.parse(text)
    weights = [vertex.name for vertex in graph.inputs if vertex.name != "X"]
    return ed.models.training_step(graph, "loss", weights)


@pytest.mark.long("sharded")
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_no_strategy_is_below_a_free_plan(inputs: str) -> None:
    step = training_step(LAYER)
    options: Any = {"inputs": inputs, "time_limit": 4.0}
    free = ed.plan(step, 64, **options)
    for name in ("data", "zero", "attention", "megatron+zero"):
        assert free.cost <= ed.plan(step, 64, strategy=name, **options).cost, name


@pytest.mark.parametrize("devices", [8, 64])
@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_what_comes_first_is_below_what_comes_first_under_any_strategy(
    objective: str, devices: int
) -> None:
    """Before anything is searched, strategies are put together: no clock decides."""
    step = training_step(LAYER)
    machine = described_machine(objective, "h100-servers", devices, None)
    mesh = mesh_of(devices, None, machine)
    search = Search(
        step,
        price_of(objective, mesh, machine),
        LayoutRules("sharded"),
        redundant=machine is not None,
    )
    named = Starts(search).named
    free = assemble(search, [], [search, *named.values()])
    assert free is not None
    for name, own in named.items():
        first = assemble(own, [], [own])
        assert first is not None, name
        assert free.cost <= first.cost * (1 + 1e-9), name


def test_state_may_leave_outer_axes_to_others() -> None:
    """Heads are too few for all devices, and their weights lie over the inner axes."""
    step = training_step(LAYER.replace("h: 8", "h: 4"))
    options: Any = {"objective": "time", "machine": "h100-servers", "time_limit": 2}
    assert ed.plan(step, 16, strategy="megatron", inputs="sharded", **options).cost > 0


def test_pins_that_say_all_are_a_plan() -> None:
    """A cube of devices: each tile is gathered from four, and summed by four."""
    text = "input A[i: 64, k: 64], B[k, j: 64]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C"
    pin = {"A": {"i": 4, "k": 16}, "B": {"k": 4, "j": 16}, "C": {"i": 4, "j": 16}}
    made = ed.plan(ed.parse(text), 64, inputs="sharded", pin=pin, time_limit=5)
    tile = 4 * 16 * 16
    assert made.cost == made.bound == 64 * 3 * tile * 3 // 4
    assert made.parts["C"] == {"i": 4, "j": 4, "k": 4}


@pytest.mark.parametrize("label", ["b", "n"])
def test_labels_lead_to_a_first_plan_where_one_axis_is_too_wide(label, monkeypatch) -> None:
    """Whatever they are called: cutting sequences moves least, and elimination is not needed."""
    sizes = f"input H0[{label}: 64, h: 32], W[h, k: 32]"
    step = "S{t}[b,h] <- sum W[h,k] * H{t}[b,k]\nH{u}[b,h] <- tanh(S{t}[b,h])"
    steps = [step.format(t=t, u=t + 1).replace("[b", f"[{label}") for t in range(3)]
    graph = ed.parse("\n".join([sizes, *steps, "output H3"]))
    machine = ed.Machine(1e12, 1e12, 1e9, 1e-6)
    price = PriceInSeconds(Mesh(tuple("cdefgh"), (2,) * 6), machine)

    def too_wide(search: Search, *_: object, **__: object) -> Outcome:
        raise UnsolvedError(f"too wide on {search.mesh.devices} devices")

    monkeypatch.setattr(minimize_movement, "choose_by_blocks", too_wide)
    starts = minimize_movement.Starts(Search(graph, price))
    starts.begin(planning_time() + 5)
    best = min(starts.plans.values(), key=lambda each: each.rank)
    views = dict(planned_views(graph))
    for name in ("S0", "H3"):
        cut = parts_by_label(views[name], price.mesh, best.decisions[name])
        assert cut[label] == 64, name
