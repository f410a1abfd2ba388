"""Files of machines: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.planner.costs.machine import COLLECTIVES, SHAPES
from eindecomp.planner.costs.presets import PRESETS, machine_of
from eindecomp.store.machine_file import from_json, to_json
from eindecomp.store.plan_file import from_json as plan_from
from eindecomp.store.plan_file import to_json as plan_json

FLOPS = dict.fromkeys(SHAPES, 1e9)
FULL = ed.Machine(
    FLOPS, 1e10, inf, {"node": 1e-6, "gpu": 0}, {"node": 2, "gpu": 2}, 1e-5, 0.25,
    {"all_gather": {"*": ((1, 1e-6), (1e6, 1e-3))}, "all_to_all": {"gpu": ((1.5, 1.0),)}},
)  # fmt: skip
GRAPH = ed.parse("input X[i: 64, j: 64]\nZ[i] <- sum X[i,j]\noutput Z")

positive = st.floats(1e-300, 1e300)
rising = st.lists(positive, min_size=1, max_size=5, unique=True).map(sorted)
curves = st.tuples(rising, rising).map(lambda both: tuple(zip(*both, strict=False)))
machines = st.builds(
    ed.Machine,
    flops=positive | st.fixed_dictionaries(dict.fromkeys(SHAPES, st.floats(1, 1e20))),
    memory_bandwidth=positive | st.just(inf),
    bandwidth=positive | st.dictionaries(st.sampled_from("abc"), positive | st.just(inf)),
    latency=st.floats(0, 1e3),
    task_overhead=st.floats(0, 1e3),
    overlap=st.floats(0, 1),
    transfers=st.dictionaries(
        st.sampled_from(COLLECTIVES), st.dictionaries(st.sampled_from(["*", "a", "b c"]), curves)
    ),
)


@given(machines)
def test_what_is_written_is_read_again(machine):
    assert from_json(to_json(machine, {"engine": "threads"})) == machine


@pytest.mark.parametrize("machine", [*map(machine_of, PRESETS), FULL])
def test_files_and_plans_have_the_same_machine(machine, tmp_path):
    path = tmp_path / "machine.json"
    machine.save(path)
    assert ed.Machine.load(path) == machine
    devices = None if machine.mesh else 4
    for given_path in (path, str(path)):
        plan = ed.plan(GRAPH, devices, "time", machine=given_path)
        assert plan.machine == machine
        assert plan.time_on(path).total == plan.cost
        assert plan_from(plan_json(plan)).cost == plan.cost
        assert plan_from(plan_json(plan)).machine == machine


def test_machines_of_older_files_have_no_overhead():
    old = {"flops": 1, "memory_bandwidth": 1, "bandwidth": {"a": 2}, "latency": 0, "mesh": []}
    content = {"format": "eindecomp machine", "version": 1, "about": {}, "machine": old}
    machine = from_json(json.dumps(content).encode())
    assert machine == ed.Machine(1, 1, {"a": 2})
    assert (machine.task_overhead, machine.overlap, machine.transfers) == (0, 0, {})


def test_machines_of_older_files_have_rates_for_fewer_shapes():
    rates = {"vector": 1.0, "thin": 2.0, "large": 3.0, "loops": 4.0}
    old = {"flops": rates, "memory_bandwidth": 1, "bandwidth": 2, "latency": 0, "mesh": []}
    content = {"format": "eindecomp machine", "version": 1, "about": {}, "machine": old}
    machine = from_json(json.dumps(content).encode())
    assert machine.flops == rates | {"huge": 3.0, "functions": 4.0}


def changed(*path, to):
    content = json.loads(to_json(FULL))
    place = content
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return json.dumps(content).encode()


BAD = [
    (b"", "not JSON"),
    (b"[]", "not a machine"),
    (b'{"format": 3}', "format: must be one of eindecomp machine"),
    (changed("version", to=2), "version 2 of machine files is newer than this program"),
    (changed("more", to=2), "there is no field 'more'"),
    (changed("about", "cpu", to="a\nb"), "about.cpu: must be a short text"),
    (changed("about", to=[]), "about: must be an object"),
    (changed("machine", "speed", to=1), "machine: there is no field 'speed'"),
    (changed("machine", "flops", to={"large": 1}), "machine: flops by shape are for"),
    (changed("machine", "overlap", to=2), "machine: a machine's overlap must be from 0 to 1"),
    (changed("machine", "task_overhead", to=-1), "machine.task_overhead: must be a number, 0"),
    (changed("machine", "mesh", to=[["a", 1]]), "machine.mesh.0.1: must be a whole number"),
    (changed("machine", "transfers", to=[]), "machine.transfers: must be an object"),
    (changed("machine", "transfers", to={"sum": {}}), "machine: transfers: no collective"),
    (changed("machine", "transfers", "all_gather", to={"*": [[1, 2], [1, 3]]}), "ascend"),
    (changed("machine", "transfers", "all_gather", to={"*": []}), "a curve has 1 to"),
    (changed("machine", "transfers", "all_gather", to={"*": [[1]]}), "must be bytes and seconds"),
    (changed("machine", "transfers", "all_gather", to={"*": [[1, "inf"]]}), "must be a number"),
    (changed("machine", "transfers", "all_gather", to={"*": [[k, k] for k in range(1, 999)]}),
     "a curve has 1 to 256 points"),
    (changed("machine", "transfers", "all_gather", to={"a+b": [[1, 1]]}), "a mesh axis has a name"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_files_are_refused(data, message):
    with pytest.raises(ed.PlanError, match=r"^bad\.json: ") as refused:
        from_json(data, "bad.json")
    assert message in str(refused.value)


def test_what_is_no_machine_is_said(tmp_path):
    with pytest.raises(ed.PlanError, match=r"an ed\.Machine, a \.json file .*, or one of"):
        ed.plan(GRAPH, 2, "time", machine="laptop")
    with pytest.raises(FileNotFoundError):
        ed.plan(GRAPH, 2, "time", machine=tmp_path / "none.json")
