"""When a rank that waits for others has to give up."""

from __future__ import annotations

from dataclasses import replace

from eindecomp.engines.spmd.watch import NOWHERE, RankState, Seen, state_of, verdict

WAITS = RankState(3, 7, True, 5.0)
WORKS = RankState(3, 6, False, 5.0)


def seen(state: RankState, heard: float = 100.0, since: float = 100.0) -> Seen:
    return Seen(state, heard, since, state.processor)


def test_states_come_back():
    for state in (WAITS, RankState(1, NOWHERE, False, 0.5, True, 'it "failed"')):
        assert state_of(state.to_bytes()) == state


def test_there_is_hope_while_others_work():
    assert verdict(0, {1: seen(WORKS)}, waits_since=50, now=100, timeout=20) is None
    assert verdict(0, {1: seen(WAITS, since=99)}, waits_since=99, now=100, timeout=20) is None


def test_who_is_not_heard_of_is_dead_or_stopped():
    rank, why = verdict(0, {1: seen(WORKS), 2: seen(WORKS, heard=70)}, 60, 100, 20)
    assert rank == 2
    assert "dead or was stopped" in why


def test_who_neither_goes_on_nor_computes_is_stuck():
    other = seen(WORKS, since=50)
    rank, why = verdict(0, {1: other}, 60, 100, 20)
    assert (rank, "stuck" in why) == (1, True)
    # Nobody is blamed before this rank has waited for long.
    assert verdict(0, {1: other}, 95, 100, 20) is None


def test_processor_time_is_a_sign_of_life():
    other = seen(WORKS, since=0)
    other.update(RankState(3, 6, False, 6.0), now=10.0)
    assert other.since == 10.0
    other.update(RankState(3, 6, False, 6.01), now=20.0)  # what a watching thread takes
    assert other.since == 10.0


def test_waiting_is_none():
    other = seen(WAITS, since=0)
    other.update(RankState(3, 7, True, 50.0), now=10.0)  # MPI's waiting is busy
    assert other.since == 0


def test_failures_and_ends_are_told():
    rank, why = verdict(0, {1: seen(RankState(3, 6, False, 5.0, failed="no memory"))}, 99, 100, 20)
    assert (rank, why) == (1, "has failed: no memory")
    rank, why = verdict(0, {1: seen(RankState(3, NOWHERE, False, 5.0, ended=True))}, 90, 100, 20)
    assert (rank, why) == (1, "has ended its program")


def test_a_failure_of_a_former_run_is_forgiven():
    """All ranks may have caught it, and have gone on to the next run."""
    failed = {1: seen(RankState(3, NOWHERE, False, 5.0, failed="no memory"))}
    assert verdict(0, failed, 99, 100, 20, run=3) is not None
    assert verdict(0, failed, 99, 100, 20, run=4) is None


def test_all_waiting_means_that_they_are_not_at_the_same_place():
    found = verdict(0, {1: seen(WAITS, since=60), 2: seen(WAITS, since=60)}, 60, 100, 20)
    assert found is not None
    assert "do not run the same program" in found[1]
    assert verdict(0, {1: seen(WAITS, since=60), 2: seen(WORKS)}, 60, 100, 20) is None


def test_a_rank_that_would_run_if_it_could_is_not_stuck():
    other = seen(WORKS, since=0)
    other.update(replace(WORKS, runs=True), now=10.0)
    assert other.since == 10.0
    waiting = seen(WAITS, since=0)
    waiting.update(replace(WAITS, runs=True), now=10.0)  # MPI's waiting is busy
    assert waiting.since == 0


def test_silence_with_signs_of_life_is_no_death():
    other = seen(WORKS, heard=0, since=0)
    other.sign_of_life(99.0)
    assert verdict(0, {1: other}, 50, 100, 20) is None


def test_who_has_told_that_it_waits_and_now_computes_in_silence_does_not_wait():
    other = seen(WAITS, heard=50, since=50)
    assert verdict(0, {1: other}, 50, 69, 18) is not None
    other.sign_of_life(68.0)
    assert verdict(0, {1: other}, 50, 69, 18) is None


def test_who_was_stopped_itself_blames_nobody():
    other = seen(WORKS, heard=50, since=50)
    other.wait_longer(45.0)
    assert verdict(0, {1: other}, 90, 100, 20) is None
