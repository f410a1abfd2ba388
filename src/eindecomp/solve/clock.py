"""The clock of planning, which stands still while the solver's loops are compiled or loaded.

On a machine's first call that can take a minute; it is no planning, and counts towards no limit.
Nor does time count in which others use the processor: on a busy machine, plans are as good.
After Ctrl-C, every deadline has passed: all stages then stop as they do when time is up.
Apart from `compiled`, so that a progress display can listen without loading numba.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock, current_thread, main_thread
from time import monotonic, process_time

from eindecomp.errors import EinDecompError

_LEAP = 1e9  # seconds, longer than anybody waits
_listener: ContextVar[Callable[[bool], None] | None] = ContextVar("listener", default=None)
_ending: ContextVar[Ending | None] = ContextVar("ending", default=None)


@dataclass(slots=True)
class Interrupts:
    """How often Ctrl-C was pressed, and the clock was read since."""

    count: int = 0
    looks: int = 0

    def note(self, *_: object) -> None:
        """Count one; raise the second, by somebody who will not wait."""
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


@dataclass(slots=True)
class Ending:
    """What has cut a call of the planner or the solver short, so far."""

    interrupts: Interrupts
    late: bool = False
    """Whether a deadline was found to have passed."""

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.interrupts.count > 0

    def reason(self, is_proved: bool) -> str:
        """What has ended the call, if it did not end by itself; a late proof is a proof."""
        if self.is_interrupted:
            return "interrupt"
        return "time" if self.late and not is_proved else ""


class _Clock:
    """One for all threads: those of one search compile for each other."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.stops, self.seconds = 0, 0.0
        self.seen, self.used = monotonic(), process_time()

    def advance(self) -> float:
        """The seconds until now: those that passed, or that this process had the processor."""
        seen, used = monotonic(), process_time()
        if not self.stops:
            self.seconds += max(min(seen - self.seen, used - self.used), 0.0)
        self.seen, self.used = seen, used
        return self.seconds


_clock = _Clock()


def planning_time() -> float:
    """Seconds that only ever grow, and not while the clock is stopped.

    After an interrupt they leap at every look: deadlines that are set then pass at once, too.
    """
    with _clock.lock:
        now = _clock.advance()
    ending = _ending.get()
    if ending is None or not ending.is_interrupted:
        return now
    interrupts = ending.interrupts
    if interrupts.count > 1:  # whoever was to raise it has lost it, as finalizers do
        raise KeyboardInterrupt
    interrupts.looks += 1
    return now + _LEAP * interrupts.looks


def has_passed(deadline: float) -> bool:
    """Whether it is later than a deadline; the ending of the call remembers if so."""
    ending = _ending.get()
    is_late = planning_time() > deadline
    if ending is not None:
        is_late = is_late or ending.is_interrupted  # there may be no deadline
        ending.late = ending.late or is_late
    return is_late


def seconds_since(start: float) -> float:
    """The seconds of planning since a time of this clock, without leaps."""
    with _clock.lock:
        return max(_clock.advance() - start, 0.0)


@contextmanager
def interruptible(*, keep: bool = True) -> Generator[Ending, None, None]:
    """Let Ctrl-C end a call as its deadline does, to `keep` what it has found by then.

    Where that is nothing, so that the call raises an error, `KeyboardInterrupt` is raised instead.
    A call within another one ends with it. Somebody else's handler of interrupts stays.
    """
    outer = _ending.get()
    ending = Ending(Interrupts() if outer is None else outer.interrupts)
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    handles = keep and outer is None and is_usual and current_thread() is main_thread()
    token = _ending.set(ending)
    try:
        if handles:
            signal.signal(signal.SIGINT, ending.interrupts.note)
        yield ending
    except EinDecompError:
        if handles and ending.is_interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _ending.reset(token)
        if outer is not None:
            outer.late = outer.late or ending.late


@contextmanager
def stopped_clock() -> Generator[None, None, None]:
    """Let the clock stand still, as while a loop is compiled."""
    with _clock.lock:
        _clock.advance()
        _clock.stops += 1
    try:
        yield
    finally:
        with _clock.lock:
            _clock.advance()
            _clock.stops -= 1


@contextmanager
def watch_compilation(listener: Callable[[bool], None]) -> Generator[None, None, None]:
    """Call `listener(True)` when this thread starts to compile a loop, `listener(False)` after.

    A loop compiles the loops that it calls, so calls may nest. An inner watch replaces an outer
    one.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_compiling(active: bool) -> None:
    """Tell the listener, if there is one, that compilation starts or has ended."""
    listener = _listener.get()
    if listener is not None:
        listener(active)
