"""Forks beside runs: a process is forked between kernel calls, not within one.

A child has only the thread that forked. What others held then is held for good: the locks of BLAS,
were a product at work. So a fork waits for calls that are at work and lets none begin meanwhile. A
call that takes too long to be waited for leaves a child in which nothing runs, and which says so.
"""

from __future__ import annotations

import os
from threading import Condition, Lock, get_ident
from time import monotonic

from eindecomp.errors import RunError
from eindecomp.kernels.cpu.products import blas_libraries as blas

PATIENCE = 5.0
"""Seconds that a fork waits for calls."""
_PAUSE = 0.001  # seconds between two looks at what is at work


class Mark:
    """Whether a thread is within a call; set and looked at without a lock."""

    __slots__ = ("at_work", "thread")

    def __init__(self) -> None:
        self.at_work, self.thread = False, get_ident()


class Gate:
    """Lets calls begin, but not while this process is forked."""

    def __init__(self) -> None:
        self.closed = False
        self._left_behind = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._close, after_in_parent=self._open, after_in_child=self._begin_anew
            )

    def _reset(self) -> None:
        self._marks: set[Mark] = set()
        self._forkers: set[int] = set()
        """The threads that fork or wait to do so: they are in Python, not within a kernel."""
        self._opened = Condition()
        self._forking = Lock()

    def join(self) -> Mark:
        """A mark for a thread that is going to carry out calls."""
        if self._left_behind:
            raise RunError(
                "this process was forked while its parent was within a kernel, and BLAS is locked "
                "in it for good: fork before the run or after it, or start processes by 'spawn'"
            )
        mark = Mark()
        self._marks.add(mark)
        return mark

    def leave(self, mark: Mark) -> None:
        """Forget a mark."""
        self._marks.discard(mark)

    def enter(self, mark: Mark) -> None:
        """Set a mark before a call; waits while the gate is closed."""
        mark.at_work = True
        # Set before looking: who closes the gate looks at marks after doing so.
        while self.closed and not self._is_within_another(mark):
            mark.at_work = False
            with self._opened:
                while self.closed:
                    self._opened.wait()
            mark.at_work = True

    def _is_within_another(self, mark: Mark) -> bool:
        """Whether a call is part of one that the fork waits for already: a run within a run."""
        others = (m for m in tuple(self._marks) if m is not mark)
        return any(other.at_work and other.thread == mark.thread for other in others)

    def _close(self) -> None:
        self._forkers.add(get_ident())
        self._forking.acquire()
        self.closed = True
        end = monotonic() + PATIENCE
        while self._busy() and monotonic() < end:
            with self._opened:
                self._opened.wait(_PAUSE)
        blas.LOCK.acquire()

    def _busy(self) -> bool:
        """Whether a thread is within a call that does not fork itself, in what it reads."""
        marks = tuple(self._marks)
        return any(mark.at_work and mark.thread not in self._forkers for mark in marks)

    def _open(self) -> None:
        blas.LOCK.release()
        self.closed = False
        with self._opened:
            self._opened.notify_all()
        self._forkers.discard(get_ident())
        self._forking.release()

    def _begin_anew(self) -> None:
        self._left_behind = self._left_behind or self._busy()
        self.closed = False
        self._reset()
        if not self._left_behind:
            blas.forget_others()
        blas.LOCK.release()


GATE = Gate()
