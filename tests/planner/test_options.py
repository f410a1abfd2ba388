"""What `plan` takes: numbers of any type, names of axes, a default number of devices."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.planner import options
from eindecomp.planner.make import plan
from eindecomp.store.plan_file import from_json, to_json

CHAIN = ed.parse(
    "input A[i: 64, j: 64], B[j, k: 64], C[k, l: 64]\n"
    "Z[i,k] <- sum A[i,j] * B[j,k]\nY[i,l] <- sum Z[i,k] * C[k,l]\nS[l] <- sum Y[i,l]\noutput S"
)
MAP = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- exp(X[i,j])\noutput Z")


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


@pytest.mark.parametrize("name", ["a+b", "a,b", "i:a", "a=2", "+"])
def test_axes_have_names_that_pins_can_tell_apart(name):
    message = r"a mesh axis has a name without \+ , : =, which separate axes"
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(MAP, mesh={name: 2})
    with pytest.raises(ed.PlanError, match=message):
        ed.Machine(1, 1, 1, mesh={name: 2})


def test_without_devices_there_is_one_for_each_core(monkeypatch):
    monkeypatch.setattr(options, "cores", lambda: 6)
    assert ed.plan(MAP).devices == 6
    assert ed.plan(MAP, mesh={"a": 4}).devices == 4
    assert ed.plan(MAP, machine="gpu-server").devices == 8
    assert ed.plan(MAP, machine="cpu-cluster").devices == 6
    assert ed.plan(MAP, 2, machine="gpu-server").devices == 2


MATMUL = """
input X[i: 8, j: 8], Y[j, k: 8]
Z[i,k] <- sum X[i,j] * Y[j,k]
output Z
"""


@pytest.mark.parametrize("solver", ["tree", "linear"])
def test_the_papers_solvers_are_for_its_objective(solver):
    with pytest.raises(PlanError, match=f"solver '{solver}' is only for objective 'bound'"):
        plan(ed.parse(MATMUL), 4, objective="bytes", solver=solver)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"graph": "Z"}, "not for str"),
        ({"devices": 0}, "devices must be an integer, 1 or more"),
        ({"devices": 2.5}, "devices must be an integer, 1 or more"),
        ({"objective": "speed"}, "objective 'speed' is not one of bytes, bound, time"),
        ({"objective": np.ones(2)}, "objective array([1., 1.]) is not one of bytes"),
        ({"solver": ed.Objective("own", ed.Machine)}, "is not one of auto, exact, tree, linear"),
        ({"solver": "magic"}, "solver 'magic' is not one of auto, exact, tree, linear"),
        ({"inputs": "spread"}, "inputs 'spread' is not one of free, sharded"),
        ({"mesh": {"gpu": 4}}, "the mesh {'gpu': 4} has 4 devices, not 8: give only one of the"),
        ({"mesh": {}}, "the mesh {} is one device, not 8: give only one of the two"),
        ({"mesh": {"gpu": 1}}, "the mesh {'gpu': 1} is one device, not 8"),
        ({"mesh": {"gpu": 0}}, "mesh axis 'gpu' needs a size of 1 or more"),
        ({"on_event": 3}, "on_event is a function that takes an event, not 3"),
        ({"on_event": "print"}, "on_event is a function that takes an event, not 'print'"),
        ({"strategy": {3: "h"}}, "a strategy has no 3"),
        ({"strategy": np.ones(2)}, "a strategy is 'sqrt', a name or a list of labels"),
        ({"pin": {3: {}}}, "pin: the graph has no tensor 3"),
        ({"pin": {"X": {3: 2}}}, "pin: X[i,j] has no label 3"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    given = {"graph": ed.parse(MATMUL), "devices": 8} | arguments
    with pytest.raises(PlanError) as error:
        plan(**given)
    assert message in str(error.value)
