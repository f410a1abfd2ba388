"""Plan files of the first version: they are read as what they meant when they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from simulate import simulate

from eindecomp.errors import PlanError
from eindecomp.store.plan_file import from_json, to_json

if TYPE_CHECKING:
    from eindecomp.planner.plan import Plan

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "version_1").glob("*.json"))}
NODE, GPU = 0, 1


def content(name: str) -> dict[str, Any]:
    return json.loads(FILES[name].read_bytes())


def read(data: dict[str, Any]) -> Plan:
    return from_json(json.dumps(data).encode())


@pytest.mark.parametrize("name", FILES)
def test_old_files_are_read_and_saved_anew(name: str) -> None:
    data = content(name)
    assert data["version"] == 1
    found = read(data)
    assert found.nesting == "mesh"
    assert found.tie == {}
    assert found.bound <= found.cost
    assert found.method == data["method"]
    new = json.loads(to_json(found))
    assert new["version"] == 2
    again = read(new)
    assert again == found
    assert (again.cost, again.bound, again.nesting) == (found.cost, found.bound, "mesh")


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("bound", "time")])
def test_old_plans_move_what_they_cost(name: str) -> None:
    found = read(content(name))
    assert simulate(found).total == found.cost


@pytest.mark.parametrize("name", ["free", "pinned", "pinned_backwards", "inner", "bound"])
def test_what_old_files_prove_holds(name: str) -> None:
    data = content(name)
    found = read(data)
    assert (found.cost, found.bound) == (data["cost"], data["bound"])
    with pytest.raises(PlanError, match="cost: is 1, but the decisions cost"):
        read(data | {"cost": 1})


def test_axes_nest_in_mesh_order_and_inner_ones_inside() -> None:
    second = read(content("inner")).decisions["Y"].second
    assert second is not None
    assert [span.axes for span in second] == [(GPU, NODE), ()]
    data = content("inner")
    assert data["vertices"]["Y"]["assignment"] == {"i": ["node", "gpu"]}
    data["vertices"]["Y"]["assignment"] = {"i": ["gpu", "node"]}
    assert read(data) == read(content("inner"))


def test_what_a_sum_scattered_lies_inside_the_tile() -> None:
    found = read(content("sharded_pieces"))
    assert [span.axes for span in found.decisions["B"].home] == [(GPU, NODE)]
    assert found.decisions["B"].places == ((NODE,),)
    assert found.decisions["A"].places == ((),)


def test_pins_did_not_say_how_axes_nest() -> None:
    found = read(content("pinned_backwards"))
    assert found.pin == {"X": {"j": ("node", "gpu")}}
    assert [span.axes for span in found.given["X"].home] == [(), (NODE, GPU)]


def test_a_file_that_does_not_say_what_was_pinned_pins_its_inputs() -> None:
    data = content("pinned")
    del data["pin"]
    found = read(data)
    assert found.pin == {"X": {"i": (), "j": ("node", "gpu")}}
    assert from_json(to_json(found)) == found


def test_sharded_inputs_get_homes_but_the_pinned_ones_stay() -> None:
    """Each reader had a shard of its own: what was proved is not about inputs that lie once."""
    found = read(content("sharded"))
    assert set(found.given) == set("XWV")
    assert (found.cost, found.bound) == (1152, 0)
    pinned = read(content("sharded_pieces"))
    assert [span.axes for span in pinned.given["X"].home] == [(GPU,), ()]
    shared = read(content("sharded_shared"))
    assert content("sharded_shared")["bound"] == 384
    assert (shared.cost, shared.bound) == (192, 0)  # W is gathered once, for both of its readers
    assert shared.given["W"].second is not None


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("free", {"tie": {}}, "there is no field 'tie'"),
    ("free", {"nesting": "any"}, "there is no field 'nesting'"),
    ("free", {"given": []}, "given: must be an object"),
    ("free", {"pin": []}, "pin: must be an object"),
    ("pinned", {"pin": {"X": 3}}, "pin.X: must be an object"),
    ("pinned", {"pin": {"X": {"j": [3]}}}, "pin.X.j.0: must be a text"),
    ("pinned", {"pin": {"X": {"j": ["cpu"]}}}, "the mesh has no axis 'cpu'"),
    ("pinned", {"pin": {"X": {"i": 4}}}, "given.X: X[i,j] does not lie where it is pinned"),
    ("pinned", {"pin": {}}, "given.X: has a layout, but the input is free"),
    ("pinned", {"given": {}}, "given.X: is missing, but the input has a home"),
    ("pinned", {"given": {"X": {"home": [], "further": None}}}, "given.X: must be a list"),
    ("pinned", {"given": {"Y": []}}, "given.Y: the graph has no input 'Y'"),
    ("sharded", {"cost": None}, "cost: must be a number"),
    ("sharded", {"bound": "low"}, "bound: must be a number"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG)
def test_wrong_fields_of_old_files_are_named(
    name: str, change: dict[str, Any], message: str
) -> None:
    data = content(name)
    if change.get("given") == {"Y": []}:
        del data["pin"]
    with pytest.raises(PlanError) as error:
        read(data | change)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("summed", "message"),
    [
        ({"node": 3}, "vertices.B.summed.node: must be a text"),
        ({"node": "j"}, r"B\[i\] has no label 'j'"),
        ({"cpu": "i"}, "the mesh has no axis 'cpu'"),
        ({"gpu": "i"}, "nothing is summed over this axis"),
        ({"\n": "i"}, "vertices.B.summed.0: must be a short text"),
        ([], "vertices.B.summed: must be an object"),
    ],
)
def test_wrong_places_of_summed_axes_are_named(summed: Any, message: str) -> None:
    data = content("sharded_pieces")
    data["vertices"]["B"]["summed"] = summed
    with pytest.raises(PlanError, match=message):
        read(data)


def test_old_layouts_need_inner_axes() -> None:
    data = content("inner")
    del data["vertices"]["Y"]["further"][0]["inner"]
    with pytest.raises(PlanError, match=r"vertices.Y.further.0.inner: is missing"):
        read(data)
