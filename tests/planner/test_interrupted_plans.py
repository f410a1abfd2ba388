"""Ctrl-C while a plan is made: the best so far, which says so; a second one raises."""

from __future__ import annotations

import signal
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
from transformer import small_transformer

import eindecomp as ed
from eindecomp.planner.budgets import ROUNDING
from eindecomp.solve.clock import has_passed, interruptible, planning_time, seconds_since

DIFFERS = "Another run may find another plan."
SLOW = """
import signal, sys
import eindecomp as ed
from transformer import small_transformer

def wait(event):
    if event.cost < float("inf") and not told:
        told.append(event)
        print("a plan", flush=True)
        while sys.stdin.readline() != "go on\\n":
            print("noted", flush=True)

told = []
try:
    plan = ed.plan(small_transformer(2), 64, time_limit=600, on_event=wait)
    assert plan.bound < plan.cost and plan.seconds < 300
    print(plan.stopped_by, plan)
except KeyboardInterrupt:
    print("none")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
CHAIN = ed.parse(
    "input A[i: 64, j: 128], B[j, k: 32], C[k, l: 256], D[l, m: 64]\n"
    "E[i,m] <- sum A[i,j] * B[j,k] * C[k,l] * D[l,m]\noutput E"
)


@pytest.mark.parametrize("times", [1, 2])
def test_a_process_keeps_its_plan_unless_it_is_interrupted_twice(times):
    process = subprocess.Popen(  # noqa: S603 - a process of ours
        [sys.executable, "-c", SLOW],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "a plan\n"
    process.send_signal(signal.SIGINT)
    if times == 1:
        printed, _ = process.communicate("go on\n", timeout=120)
        assert printed.startswith("interrupt Plan of ")
        assert f", when interrupted. {DIFFERS}" in printed
    else:
        process.stdin.write("\n")
        assert process.stdout.readline() == "noted\n"
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
        assert printed == "none\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (CHAIN, {}),
        (CHAIN, {"objective": "bound"}),
        (CHAIN, {"objective": "time", "machine": "cpu-cluster"}),
        (CHAIN, {"memory": "100kB"}),
    ],
)
def test_an_interrupt_at_any_event_leaves_a_plan_or_is_raised(graph, options):
    """Once an event has told a cost, there is a plan to keep."""
    events = []
    best = ed.plan(graph, 8, on_event=events.append, **options)
    for number in range(0, len(events), 1 + len(events) // 12):
        told = []

        def interrupt(event, number=number, told=told):
            told.append(event)
            if len(told) == number + 1:
                signal.raise_signal(signal.SIGINT)

        try:
            plan = ed.plan(graph, 8, on_event=interrupt, **options)
        except KeyboardInterrupt:
            assert told[number].cost == inf
        else:
            if len(told) > number:  # a process that has planned it before may tell less
                assert plan.stopped_by == "interrupt"
            assert plan.bound <= best.cost * (1 + 1e-9)
            assert best.bound <= plan.cost * (1 + 1e-9)
            assert (DIFFERS in str(plan)) == (plan.bound < plan.cost * (1 - ROUNDING))
        assert all(event.seconds < 1000 for event in told)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_raised_at_once_where_nobody_would_keep_the_plan():
    def interrupt(event):
        told.append(event)
        signal.raise_signal(signal.SIGINT)

    told = []
    with pytest.raises(KeyboardInterrupt):
        ed.plan(CHAIN, 8, on_event=interrupt, keep_on_interrupt=False)
    assert len(told) == 1


def test_a_comparison_keeps_the_rows_before_an_interrupt(monkeypatch):
    plan = ed.plan(CHAIN, 8)
    planned = []

    def make(*args, **options):
        planned.append(options["strategy"])
        if len(planned) == 2:
            signal.raise_signal(signal.SIGINT)
        return ed.plan(*args, **options)

    monkeypatch.setattr("eindecomp.show.compare.make_plan", make)
    compared = plan.compare({"one": ["i"], "two": ["j"], "three": ["k"]})
    assert planned == [["i"], ["j"]]
    assert [row.cost is None for row in compared] == [False, False, True, True]
    assert [row.refused for row in compared][2:] == ["interrupted", "interrupted"]
    assert str(compared).count("no plan: interrupted") == 2


def test_after_an_interrupt_every_deadline_has_passed():
    with interruptible() as ending:
        assert not has_passed(inf)
        start = planning_time()
        signal.raise_signal(signal.SIGINT)
        assert has_passed(start + 1e6)
        assert has_passed(inf)
        assert has_passed(planning_time() + 1e6)
        assert seconds_since(start) < 1000
        with interruptible() as inner:
            assert inner.is_interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):  # should somebody have suppressed the first
            planning_time()
        assert ending.reason(is_proved=True) == "interrupt"
    assert planning_time() < start + 1000


def test_only_a_late_call_without_a_proof_was_stopped_by_time():
    with interruptible() as ending:
        assert not has_passed(planning_time() + 1000)
        assert ending.reason(is_proved=False) == ""
        with interruptible() as inner:
            assert has_passed(planning_time() - 1)
        assert inner.late
        assert ending.reason(is_proved=False) == "time"
        assert ending.reason(is_proved=True) == ""


def test_the_interrupts_of_somebody_else_stay_with_them():
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(None))
    try:
        with interruptible() as ending:
            signal.raise_signal(signal.SIGINT)
        assert len(seen) == 1
        assert not ending.is_interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("options", [{}, {"objective": "bound"}])
def test_a_proved_plan_does_not_say_that_another_run_may_differ(options):
    plan = ed.plan(CHAIN, 8, **options)
    assert plan.bound == plan.cost
    assert plan.stopped_by == ""
    assert DIFFERS not in plan.explain()


def test_a_plan_that_time_cut_off_says_that_another_run_may_differ(tmp_path):
    plan = ed.plan(small_transformer(2), 8, memory="30kB", time_limit=0.5)
    assert plan.bound < plan.cost
    assert plan.stopped_by == "time"
    words = f", when time was up. {DIFFERS}"
    assert words in plan.explain(1000)
    plan.save(tmp_path / "plan.json")
    assert words in str(ed.Plan.load(tmp_path / "plan.json"))
    page = plan.report(tmp_path / "plan.html", compare=False).read_text()
    assert DIFFERS in page
    assert "another run may find another plan: this plan" in " ".join(str(plan.compare({})).split())
