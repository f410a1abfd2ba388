"""Traces: the rows of each device, and no two tasks at once in one of them."""

from __future__ import annotations

import json
from itertools import groupby

import numpy as np
import pytest
from transformer import small_transformer

import eindecomp as ed
from eindecomp.engines.threads.engine import ThreadsEngine


@pytest.fixture
def trace(tmp_path):
    plan = ed.plan(small_transformer(1), 4, strategy=["s"])
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in plan.graph.inputs}
    path = tmp_path / "run.json"
    ed.run(plan, arrays, ThreadsEngine(workers=4), trace=path)
    return json.loads(path.read_text())["traceEvents"]


def test_no_row_has_two_tasks_at_once(trace):
    def row(event):
        return event["pid"], event["tid"]

    tasks = sorted((e for e in trace if e["ph"] == "X" and e["cat"] != "compile"), key=row)
    for _, own in groupby(tasks, key=row):
        end = 0.0
        for task in sorted(own, key=lambda event: event["ts"]):
            assert task["ts"] >= end - 1e-3  # microseconds are rounded
            end = task["ts"] + task["dur"]


def test_rows_are_named_and_every_device_has_some(trace):
    rows = {(e["pid"], e["tid"]) for e in trace if e["ph"] == "X"}
    assert {pid for pid, _ in rows} == {0, 1, 2, 3}
    named = {(e["pid"], e["tid"]): e["args"] for e in trace if e["name"] == "thread_name"}
    assert named == {(pid, tid): {"name": f"worker {tid}"} for pid, tid in rows}
    devices = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    assert devices == {device: f"device {device}" for device in range(4)}


def test_what_moves_does_so_when_its_vertex_starts(trace):
    starts = {(e["name"], e["ts"]) for e in trace if e["ph"] == "X"}
    moved = [e for e in trace if e["name"] == "moved"]
    assert moved
    assert all((e["args"]["vertex"], e["ts"]) in starts for e in moved)


def test_a_trace_that_cannot_be_written_costs_no_result():
    plan = ed.plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] * 2\noutput Z"), 2)
    with pytest.warns(RuntimeWarning, match=r"trace was not written: No space left .*'/dev/full'"):
        found = ed.run(plan, {"X": np.ones(8, np.float32)}, trace="/dev/full")
    assert (found["Z"] == 2).all()
