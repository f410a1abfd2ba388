"""A thread in every rank that tells the others how it is, and ends a job that cannot go on.

Ranks that wait for one that is dead, stopped or stuck would wait for ever, deep inside the
transport. So each tells the others twice a second at which step it is, how much processor time it
has used, and whether it waits. A rank that waits ends the whole job, with a message, if

- it has heard nothing of another rank for `timeout` seconds, and that is not seen to run on this
  machine: it is dead or was stopped;
- another rank has failed, or has ended its program;
- another rank has for `timeout` seconds neither gone on nor computed anything;
- all ranks have been waiting for `timeout` seconds: they are not at the same place.

A rank that computes, or reads or writes files, may take as long as it likes. What ranks tell each
other by may itself be stuck: a second thread sees to it that the first one does not wait for ever.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from time import monotonic, process_time

from eindecomp.engines.spmd.exchange import Transport

_TICK = 0.5  # seconds between two messages
_IDLE = 0.05  # of the time, what a process uses that does nothing but watch
_PAUSE = 3.0  # seconds of silence after which one looks more closely
_LONGEST = 600  # characters of what a failed rank has to say
NOWHERE = -1
USUAL = 20.0
"""Seconds that a rank waits for one that does nothing before it ends the job."""
RUNS, SLEEPS, STOPPED, GONE = "runs", "sleeps", "was stopped", "is gone"
_STATES = {"R": RUNS, "T": STOPPED, "t": STOPPED, "Z": GONE, "X": GONE}


def look_at(process: int) -> str:
    """What its first thread does: it runs or waits for a processor, sleeps, was stopped, is gone.

    >>> look_at(os.getpid())
    'runs'
    """
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return _STATES.get(status, SLEEPS)
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return GONE
    return SLEEPS


@dataclass(frozen=True, slots=True)
class RankState:
    """What a rank tells of itself."""

    run: int
    step: int
    """At which it is; `NOWHERE` outside of a run."""
    waits: bool
    processor: float
    """Seconds of processor time so far."""
    ended: bool = False
    failed: str = ""
    on_disk: bool = False
    """Whether it reads or writes files, which takes as long as it takes."""
    runs: bool = False
    """Whether its first thread runs, or would if there were a processor for it."""
    process: int = 0
    host: str = ""

    def to_bytes(self) -> bytes:
        """A text that `state_of` reads."""
        return json.dumps(asdict(self)).encode()

    @property
    def place(self) -> tuple[int, int, bool]:
        """Where it is."""
        return self.run, self.step, self.waits


def state_of(text: bytes) -> RankState:
    """The state that a rank has told."""
    return RankState(**json.loads(text))


@dataclass(slots=True)
class Seen:
    """What was heard of a rank: its state, when, and since when it is at one place and idle."""

    state: RankState
    heard: float
    since: float
    processor: float
    """Its processor time then."""

    def update(self, state: RankState, now: float) -> None:
        """Note what it tells now."""
        busy = state.processor - self.processor > _IDLE * (now - self.since) + _IDLE or state.runs
        if state.place != self.state.place or (busy and not state.waits):
            self.since, self.processor = now, state.processor
        self.state, self.heard = state, now

    def sign_of_life(self, now: float) -> None:
        """Note that it runs although it tells nothing, as in a call that keeps all threads waiting.

        A rank that waits goes on telling, so this one no longer waits, even if it last said so.
        """
        self.heard = self.since = now

    def wait_longer(self, seconds: float) -> None:
        """Note that nobody listened for some time."""
        self.heard, self.since = self.heard + seconds, self.since + seconds


def verdict(
    own: int, seen: Mapping[int, Seen], waits_since: float, now: float, timeout: float, run: int = 0
) -> tuple[int, str] | None:
    """Which rank keeps this one waiting in vain and why; None if there is hope.

    `seen` are the other ranks, and `waits_since` is when this one began to wait. Who has failed in
    a run before `run` may have gone on since.
    """
    for rank, other in seen.items():
        if other.state.failed and other.state.run >= run:
            return rank, f"has failed: {other.state.failed}"
    for rank, other in seen.items():
        if other.state.ended and now - waits_since > 2 * _TICK:
            return rank, "has ended its program"
        silent = now - other.heard
        if silent > timeout:
            return rank, f"is dead or was stopped: nothing was heard of it for {silent:.0f} s"
        still = min(now - other.since, now - waits_since)
        if still > timeout and not other.state.waits and not other.state.on_disk:
            return rank, f"is stuck: it has neither gone on nor computed anything for {still:.0f} s"
    all_idle = all(each.state.waits and now - each.since > timeout for each in seen.values())
    if now - waits_since > timeout and all_idle:
        rank = next(iter(seen), own)
        return rank, "waits, too, at another place: ranks do not run the same program"
    return None


class Watch:
    """The watching thread of a process, and what it knows of the main one."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self.timeout = timeout
        self.run = 0
        self.step = NOWHERE
        self.waits = self.on_disk = False
        self.describe: Callable[[int], str] = str
        """A step in words."""
        self.doing = ""
        """What it waits for outside of any run."""
        self._transport = transport
        self._failed = ""
        self._ended = False
        now = monotonic()
        nothing = RankState(0, NOWHERE, False, 0.0)
        others = (rank for rank in range(transport.size) if rank != transport.rank)
        self._seen = {rank: Seen(nothing, now, now, 0.0) for rank in others}
        self._waits_since = now
        self._place = (0, NOWHERE, False)
        self._looked, self._looks = now, 0
        self._process, self._host = os.getpid(), gethostname()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="eindecomp-watch", daemon=True)
        if self._seen:
            self._thread.start()
            threading.Thread(target=self._guard, name="eindecomp-guard", daemon=True).start()
            atexit.register(self.end)

    @contextmanager
    def waiting(self, doing: str) -> Generator[None]:
        """Wait for others outside of a run."""
        before = self.waits, self.doing
        self.doing, self.waits = doing, True
        try:
            yield
        finally:
            self.waits, self.doing = before

    @contextmanager
    def not_stuck(self) -> Generator[None]:
        """Do what computes nothing and takes as long as it takes, as files do."""
        self.on_disk = True
        try:
            yield
        finally:
            self.on_disk = False

    def failed(self, message: str) -> None:
        """Tell the others that this rank cannot go on with its run."""
        self._failed = message[:_LONGEST]

    def begin_run(self, describe: Callable[[int], str]) -> None:
        """Tell the others that a run begins, whatever became of the one before."""
        self._failed = ""
        self.run, self.describe = self.run + 1, describe

    def end(self) -> None:
        """Tell the others that the program has come to its end, and watch no more."""
        self._ended = True
        self._stop.set()
        self._thread.join(4 * _TICK)

    def state(self) -> RankState:
        """What this rank has to tell."""
        place, process = (self.run, self.step, self.waits), self._process
        told = process_time(), self._ended, self._failed, self.on_disk
        return RankState(*place, *told, look_at(process) == RUNS, process, self._host)

    def _watch(self) -> None:
        try:
            while not self._stop.wait(_TICK):
                self._look()
            self._transport.post(self.state().to_bytes())
        except Exception as error:
            if not self._stop.is_set():
                self._end_job(f"lost the ranks that it watches: {type(error).__name__}: {error}")

    def _guard(self) -> None:
        """End the job if the other thread does not come back from telling and listening."""
        looks, times = -1, 0
        while not self._stop.wait(_TICK):
            looks, times = self._looks, times + 1 if looks == self._looks else 0
            if times * _TICK > self.timeout and self.waits:
                here = {rank: how for rank in self._seen if (how := self._looks_like(rank))}
                why = [f"; rank {rank} {how}" for rank, how in here.items() if how != RUNS]
                self._end_job(
                    f"waits in {self._in_words(self.state())} and has heard of nobody for "
                    f"{times * _TICK:.0f} s: what ranks tell each other by is stuck{''.join(why)}"
                )

    def _looks_like(self, rank: int) -> str:
        """How a rank of this machine is; nothing for one of another machine."""
        state = self._seen[rank].state
        return look_at(state.process) if state.host == self._host and state.process else ""

    def _listen(self, now: float) -> None:
        """Take what others tell, and see for ourselves who tells nothing."""
        pause = now - self._looked
        if pause > _PAUSE:  # this rank was stopped itself, or had no processor
            for other in self._seen.values():
                other.wait_longer(pause)
            self._waits_since += pause
        for rank, text in self._transport.heard().items():
            self._seen[rank].update(state_of(text), now)
        for rank, other in self._seen.items():
            if now - other.heard > min(_PAUSE, self.timeout / 2) and self._looks_like(rank) == RUNS:
                other.sign_of_life(now)
        self._looked, self._looks = now, self._looks + 1

    def _look(self) -> None:
        now, state = monotonic(), self.state()
        self._transport.post(state.to_bytes())
        self._listen(now)
        if state.place != self._place:
            self._place, self._waits_since = state.place, now
        if not state.waits:
            return
        # If this rank has failed in the same run, it has gone on since, as others may have.
        run = state.run + 1 if state.failed else state.run
        times = self._waits_since, now, self.timeout
        judged = verdict(self._transport.rank, self._seen, *times, run)
        if judged is not None and self.waits and self.step == state.step:
            rank, why = judged
            at = self._seen[rank].state if rank in self._seen else state
            self._end_job(
                f"waits in {self._in_words(state)} for rank {rank}, which {why}; "
                f"rank {rank} was last {self._at(at)}"
            )

    def told_to_end(self) -> None:
        """Say where this rank was when it was told to end, and end."""
        state = self.state()
        doing = "waited" if state.waits else "was"
        gone = "".join(f"; rank {rank} is gone" for rank in self._transport.lost())
        self._say(f"was told to end while it {doing} {self._at(state)}{gone}")
        os._exit(128 + signal.SIGTERM)

    def _in_words(self, state: RankState) -> str:
        if state.step == NOWHERE:
            return self.doing or "what comes between runs"
        return f"step {state.step} of run {state.run} ({self.describe(state.step)})"

    def _at(self, state: RankState) -> str:
        return "outside of any run" if state.step == NOWHERE else f"in {self._in_words(state)}"

    def _end_job(self, message: str) -> None:
        self._say(f"{message}. The job ends")
        self._transport.abort()

    def _say(self, message: str) -> None:
        with suppress(OSError):
            os.write(2, f"eindecomp: rank {self._transport.rank} {message}.\n".encode())


_WATCHES: dict[str, Watch] = {}


def watch_of(transport: Transport, timeout: float | None = None) -> Watch:
    """The watch of this process, made when it is first asked for."""
    if transport.name not in _WATCHES:
        _WATCHES[transport.name] = Watch(transport, USUAL)
        _tell_where_it_was(_WATCHES[transport.name])
    watch = _WATCHES[transport.name]
    watch.timeout = watch.timeout if timeout is None else timeout
    return watch


def _tell_where_it_was(watch: Watch) -> None:
    """Say where this rank was when its launcher ends it, as when another rank has died."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)

    def tell() -> None:
        while byte := os.read(reading, 1):
            if byte[0] == signal.SIGTERM:
                watch.told_to_end()

    threading.Thread(target=tell, name="eindecomp-signals", daemon=True).start()
