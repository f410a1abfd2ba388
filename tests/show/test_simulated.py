"""Simulated runs as text and as traces."""

from __future__ import annotations

import json
from itertools import groupby, pairwise

import pytest
from transformer import small_transformer

import eindecomp as ed


@pytest.fixture(scope="module")
def run():
    plan = ed.plan(small_transformer(1), mesh={"node": 2, "gpu": 2}, inputs="sharded")
    rates = {"node": 1e9, "gpu": 1e10}
    machine = ed.Machine(1e12, 1e11, rates, {"node": 1e-5, "gpu": 1e-6})
    return ed.simulate(plan, machine)


def test_the_text_tells_time_devices_links_and_path(run):
    text = str(run)
    assert f"({run.seconds:.6g} seconds) on 4 devices" in text
    for words in ("computing", "waiting for communication", "node", "gpu", "critical path"):
        assert words in text
    longest = max(run.critical_path, key=lambda step: step.seconds)
    assert longest.vertex in text


def test_a_trace_has_the_rows_of_the_devices_that_were_asked_for(run, tmp_path):
    path = tmp_path / "trace.json"
    run.trace(path, devices=(0, 3))
    tasks = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {task["pid"] for task in tasks} == {0, 3}
    end = max(task["ts"] + task["dur"] for task in tasks) / 1e6
    assert end <= run.seconds * (1 + 1e-9)
    kernels = [task for task in tasks if task["tid"] == 0]
    for device, own in groupby(kernels, key=lambda task: task["pid"]):
        own = list(own)
        for before, after in pairwise(own):
            assert after["ts"] >= before["ts"] + before["dur"] - 1e-6
        assert sum(task["dur"] for task in own) / 1e6 == pytest.approx(run.computing[device])


@pytest.mark.parametrize(("devices", "message"), [((4,), "no device 4"), (range(65), "at most 64")])
def test_devices_that_are_not_there_are_refused(run, tmp_path, devices, message):
    with pytest.raises(ed.InputError, match=message):
        run.trace(tmp_path / "trace.json", devices=tuple(devices))
