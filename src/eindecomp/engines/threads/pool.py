"""Threads that stay, and carry out whatever job is offered.

The thread that runs a short job works along, and could do all of it alone: helpers join it if they
are free, and nobody waits for one that has not. So runs may start from within other runs, and
beside them. The main thread only waits for a long one, as Python hears of Ctrl-C there and not
while a kernel lasts. Interrupted, it leaves at once: kernels that are at work end by themselves,
with arrays that nobody else has any more.
"""

from __future__ import annotations

import os
from collections import deque
from threading import Condition, RLock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING

from eindecomp.kernels.interrupts import uninterrupted

if TYPE_CHECKING:
    from eindecomp.engines.threads.job import Job

_PAUSE = 0.05  # seconds between two looks for interrupts


class _Offer:
    """A job, how many helpers may still join it, how many work on it and how many have left it."""

    def __init__(self, job: Job, places: int) -> None:
        self.job, self.places, self.helpers, self.left = job, places, 0, 0

    @property
    def is_over(self) -> bool:
        """Whether somebody found nothing more to begin, and nobody is at work."""
        return self.left > 0 and not self.helpers


class Workers:
    """Threads that wait for offers, which they take in the order they were made."""

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):  # threads do not survive one
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._threads = 0
        self._free = 0
        """Threads that wait for an offer, or are about to."""
        self._offers: deque[_Offer] = deque()
        lock = RLock()
        self._offered, self._left = Condition(lock), Condition(lock)

    def run(self, job: Job, workers: int) -> None:
        """Carry a job out on so many threads at most; raises what stopped it."""
        places = min(workers, len(job.schedule.calls))
        if job.schedule.is_long and current_thread() is main_thread():
            self._run_apart(job, _Offer(job, places))
        elif places > 1:
            self._run_along(job, _Offer(job, places - 1))
        else:
            job.work()
        job.check()

    def _run_apart(self, job: Job, offer: _Offer) -> None:
        """Have others carry a job out, and look up for interrupts meanwhile.

        An interrupt anywhere else could leave a lock behind that nobody lets go of.
        """
        with uninterrupted() as tell:
            try:
                self._make(offer, enough=True)
                while not self._is_over(offer):
                    tell()
            except BaseException as error:
                job.stop(error)
            self._withdraw(offer)

    def _run_along(self, job: Job, offer: _Offer) -> None:
        """Wherever an interrupt reaches this thread, nobody begins anything afterwards."""
        try:
            self._make(offer)
            job.work()
        except BaseException as error:
            job.stop(error)
        ended = False
        while not ended:
            try:
                self._withdraw(offer)
                ended = True
            except BaseException as error:
                job.stop(error)

    def _make(self, offer: _Offer, *, enough: bool = False) -> None:
        """Offer a job; with `enough`, to as many threads that are free as have a place."""
        with self._offered:
            self._offers.append(offer)
            wanted = sum(other.places for other in self._offers)
            while self._threads < offer.places or (enough and self._free < wanted):
                name = f"eindecomp-{self._threads + 1}"
                Thread(target=self._serve, name=name, daemon=True).start()
                self._threads += 1
                self._free += 1
            self._offered.notify(offer.places)

    def _is_over(self, offer: _Offer) -> bool:
        """Whether all who joined have left, as there is nothing to begin any more; looks twice."""
        with self._left:
            if not offer.is_over:
                self._left.wait(_PAUSE)
            return offer.is_over

    def _withdraw(self, offer: _Offer) -> None:
        """Let nobody join any more, and wait for those who have, unless this was interrupted."""
        with self._left:
            if offer in self._offers:
                self._offers.remove(offer)
            while offer.helpers and not offer.job.interrupted:
                self._left.wait()

    def _serve(self) -> None:
        while True:
            with self._offered:
                while not self._offers:
                    self._offered.wait()
                self._free -= 1
                offer = self._offers[0]
                offer.helpers += 1
                offer.places -= 1
                if not offer.places:
                    self._offers.popleft()
            offer.job.work()
            with self._left:
                self._free += 1
                offer.helpers -= 1
                offer.left += 1
                self._left.notify_all()
            del offer


WORKERS = Workers()
