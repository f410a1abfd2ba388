"""Presets of machines: for any number of devices, and for any mesh that servers fit."""

from __future__ import annotations

from ast import literal_eval
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.planner.costs.presets import PRESETS, Servers, machine_of

GRAPH = ed.parse("input X[i: 128, j: 64], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
SERVERS = {name: preset for name, preset in PRESETS.items() if isinstance(preset, Servers)}
names = st.sampled_from(sorted(SERVERS))
counts = st.integers(1, 4096)
meshes = st.dictionaries(
    st.sampled_from(["dp", "tp", "x", "node", "gpu", "node0", "gpu1"]),
    st.integers(1, 16),
    max_size=4,
)


def inside(name: str, axes: dict[str, int]) -> int:
    """The devices of a server: those along axes with its inner links."""
    machine, own = machine_of(name, axes=axes), SERVERS[name].inside
    return prod(axes[axis] for axis in machine.mesh if machine.bandwidth_of(axis) == own.bandwidth)


@given(names, counts)
def test_servers_are_as_full_as_equal_ones_can_be(name, devices):
    machine = machine_of(name, devices)
    assert prod(machine.mesh.values()) == devices
    used = inside(name, dict(machine.mesh))
    assert used == max(n for n in range(1, 9) if devices % n == 0)


@given(names, counts)
def test_figures_are_the_same_for_any_number(name, devices):
    """Links inside are never slower than those further out, and each axis has one of two."""
    preset, machine = SERVERS[name], machine_of(name, devices)
    links = [(machine.bandwidth_of(axis), machine.latency_of(axis)) for axis in machine.mesh]
    assert set(links) <= {preset.inside, preset.between}
    assert [rate for rate, _ in links] == sorted(rate for rate, _ in links)
    assert [wait for _, wait in links] == sorted((wait for _, wait in links), reverse=True)
    assert (machine.flops, machine.memory_bandwidth) == (preset.flops, preset.memory_bandwidth)


@given(names, meshes)
def test_a_mesh_fits_or_the_message_has_one_that_does(name, axes):
    devices = prod(axes.values())
    try:
        machine = machine_of(name, axes=axes)
    except PlanError as error:
        before, written = str(error).split(": write mesh=")
        assert str({axis: size for axis, size in axes.items() if size > 1}) in before
        fitting = literal_eval(written)
        assert prod(fitting.values()) == devices
        machine = machine_of(name, axes=fitting)
    rates = [machine.bandwidth_of(axis) for axis in machine.mesh]
    assert rates == sorted(rates)
    assert inside(name, dict(machine.mesh)) <= 8


@pytest.mark.parametrize(
    ("axes", "wanted"),
    [
        ({"x": 4, "y": 16}, "mesh={'x': 4, 'y_node': 2, 'y_gpu': 8}"),
        ({"x": 4, "y": 4}, "mesh={'x_node': 2, 'x_gpu': 2, 'y': 4}"),
        ({"x": 8, "y": 3}, "mesh={'node0': 3, 'gpu0': 2, 'gpu1': 2, 'gpu2': 2}"),
        ({"node": 2, "gpu": 16}, "mesh={'node0': 2, 'node1': 2, 'gpu0': 2, 'gpu1': 2, 'gpu2': 2}"),
    ],
)
def test_a_mesh_that_does_not_fit_is_told_which_would(axes, wanted):
    with pytest.raises(PlanError) as caught:
        ed.plan(GRAPH, objective="time", machine="h100-servers", mesh=axes)
    assert str(axes) in str(caught.value)
    assert str(caught.value).endswith(wanted)


@pytest.mark.long
def test_plans_are_made_and_simulated_for_sixty_four():
    """With devices, with a mesh, and with a mesh of the plan's own."""
    for name in PRESETS:
        made = ed.plan(GRAPH, 64, "time", strategy=["i"], machine=name, inputs="sharded")
        assert (made.devices, made.cost >= made.bound) == (64, True)
        assert ed.simulate(made).seconds > 0
        other = ed.plan(GRAPH, 64, strategy=["i"], inputs="sharded")
        assert ed.simulate(other, name).bytes_moved == other.cost
        assert other.time_on(name).total > 0
    by_axes = ed.plan(GRAPH, machine="h100-servers", mesh={"dp": 8, "tp": 8}, strategy=["i"])
    assert by_axes.mesh.axes == {"dp": 8, "tp": 8}


def test_a_described_machine_says_its_mesh():
    machine = ed.Machine(1e12, 1e11, {"node": 1e9, "gpu": 1e10}, mesh={"node": 2, "gpu": 2})
    made = ed.plan(GRAPH, 4)
    with pytest.raises(PlanError, match=r"axis 'axis0', only .* mesh=\{'node': 2, 'gpu': 2\}"):
        ed.simulate(made, machine)


def test_what_needs_no_links_takes_as_many_times_less():
    graph = ed.parse("input X[i: 1024, j: 64]\nZ[i,j] <- exp(X[i,j])\noutput Z")
    one, *more = (ed.plan(graph, n, "time", machine="a100-servers") for n in (8, 16, 64, 512))
    assert [one.cost / plan.cost for plan in more] == pytest.approx([2, 8, 64])


@pytest.mark.parametrize("devices", [256, 1024])
def test_layouts_that_do_not_nest_are_priced_on_many_servers(devices: int) -> None:
    text = "input X[b: 4096, i: 4096], W[i, h: 16384]\nH[b,h] <- sum X[b,i] * W[i,h]\noutput H"
    asked = {"objective": "time", "machine": "h100-servers", "inputs": "sharded"}
    made = ed.plan(ed.parse(text), devices, **asked, time_limit=10)
    assert 0 < made.bound <= made.cost
