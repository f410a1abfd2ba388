"""The homes in plan files: those that break what the file says about them are refused."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.planner.make import plan
from eindecomp.store.plan_file import from_json, to_json

STEP = ed.parse("""
    input X[i: 8, j: 8], W[j, k: 8], B[k]
    Y[i,k] <- sum X[i,j] * W[j,k]
    G[j,k] <- sum X[i,j] * Y[i,k]
    W2[j,k] <- W[j,k] - G[j,k] * B[k]
    V[j,k] <- exp(G[j,k])
    output W2, V
""")
MESH = {"node": 2, "gpu": 2}


def cut(*axes: list[str]) -> list[dict[str, Any]]:
    return [{"axes": own, "start": 0, "stop": 8, "scale": 1} for own in axes]


def made(**asked: Any) -> dict[str, Any]:
    return json.loads(to_json(plan(STEP, mesh=MESH, rewrite=False, **asked)))


def refused(data: dict[str, Any]) -> str:
    with pytest.raises(PlanError) as error:
        from_json(json.dumps(data).encode())
    return str(error.value)


@pytest.fixture(scope="module")
def tied() -> dict[str, Any]:
    return made(tie={"W": "W2"})


@pytest.fixture(scope="module")
def sharded() -> dict[str, Any]:
    return made(inputs="sharded")


@pytest.mark.parametrize("inputs", ["free", "sharded"])
@pytest.mark.parametrize("pin", [{}, {"W2": {"j": ["gpu", "node"]}}, {"X": {"j": 4}}])
def test_ties_come_back(inputs: str, pin: dict[str, Any]) -> None:
    found = plan(STEP, mesh=MESH, inputs=inputs, pin=pin, tie={"W": "W2"})
    again = from_json(to_json(found))
    assert again == found
    assert again.tie == {"W": "W2"}
    assert again.given["W"].home == again.decisions["W2"].home
    assert again != plan(STEP, mesh=MESH, inputs=inputs, pin=pin)


def test_orders_of_axes_come_back() -> None:
    pin = {"X": {"j": ["gpu", "node"]}, "V": {"k": ["gpu", "node"]}}
    found = plan(STEP, mesh=MESH, pin=pin)
    again = from_json(to_json(found))
    assert again == found
    assert [span.axes for span in again.given["X"].home] == [(), (1, 0)]
    assert [span.axes for span in again.decisions["V"].home] == [(), (1, 0)]
    assert found != plan(STEP, mesh=MESH, pin={"X": {"j": ["node", "gpu"]}, "V": pin["V"]})


def test_what_has_a_home_must_say_where(tied: dict[str, Any], sharded: dict[str, Any]) -> None:
    for saved in (tied, sharded):
        data = deepcopy(saved)
        del data["given"]["W"]
        assert refused(data).endswith("given.W: is missing, but the input has a home")


def test_free_inputs_have_no_home(tied: dict[str, Any], sharded: dict[str, Any]) -> None:
    data = deepcopy(tied)
    data["given"]["X"] = {"home": cut(["node"], ["gpu"]), "further": None}
    assert refused(data).endswith("given.X: has a layout, but the input is free")
    for saved, change in ((tied, {"tie": {}}), (sharded, {"inputs": "free"})):
        assert refused(saved | change).endswith("has a layout, but the input is free")


def test_tied_inputs_lie_where_their_result_does(tied: dict[str, Any]) -> None:
    for axes in ([["gpu"], ["node"]], [["gpu", "node"], []], [[], []]):
        data = deepcopy(tied)
        data["given"]["W"]["home"] = cut(*axes)
        assert "given.W: does not lie where 'W2', to which it is tied, is" in refused(data)
    elsewhere = made(tie={"W": "W2"}, pin={"W2": {"j": 4}, "V": {"k": 4}})
    assert "given.W: does not lie where 'V'" in refused(elsewhere | {"tie": {"W": "V"}})


@pytest.mark.parametrize(
    ("tie", "message"),
    [
        ([], "tie: must be an object"),
        ({"W": 3}, "tie.W: must be a text, not 3"),
        ({"Q": "W2"}, "tie: the graph has no input 'Q'"),
        ({"Y": "W2"}, "tie: the graph has no input 'Y'"),
        ({"W": "Q"}, "tie: the graph has no output 'Q'"),
        ({"W": "G"}, "tie: the graph has no output 'G'"),
        ({"B": "V"}, "tie: B[k] is float32 [8], but V[j,k] is float32 [8, 8]"),
        ({"W": "W2", "X": "W2"}, "tie: 'W2' is tied to two inputs"),
    ],
)
def test_wrong_ties_are_named(tied: dict[str, Any], tie: Any, message: str) -> None:
    assert message in refused(tied | {"tie": tie})


def test_a_pin_of_a_tied_input_is_one_of_its_result(tied: dict[str, Any]) -> None:
    pinned = tied | {"pin": {"W": {"j": 2}}}
    assert "where 'W', which is tied to it, is pinned, {'j': 2}" in refused(pinned)
    assert "tie: is missing" in refused({k: v for k, v in tied.items() if k != "tie"})
