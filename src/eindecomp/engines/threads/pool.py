"""Threads that stay, and help whoever has a job.

The thread that runs a job works along, and could do all of it alone: helpers join it if they are
free, and nobody waits for one that has not. So runs may start from within other runs, and beside
them.
"""

from __future__ import annotations

import os
from collections import deque
from threading import Condition, RLock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.engines.threads.job import Job


class _Offer:
    """A job, how many helpers may still join it, and how many work on it."""

    def __init__(self, job: Job, places: int) -> None:
        self.job, self.places, self.helpers = job, places, 0


class Workers:
    """Threads that wait for offers, which they take in the order they were made."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._process = os.getpid()
        self._threads = 0
        self._offers: deque[_Offer] = deque()
        lock = RLock()
        self._offered, self._left = Condition(lock), Condition(lock)

    def run(self, job: Job, workers: int) -> None:
        """Carry a job out on so many threads at most; raises what stopped it."""
        places = min(workers, len(job.program.calls)) - 1
        if places > 0:
            self._run_helped(job, _Offer(job, places))
        else:
            job.work()
        job.check()

    def _run_helped(self, job: Job, offer: _Offer) -> None:
        """Wherever an interrupt reaches this thread, it is over when no helper works any more."""
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

    def _make(self, offer: _Offer) -> None:
        if os.getpid() != self._process:  # threads do not survive a fork
            self._renew()
        with self._offered:
            while self._threads < offer.places:
                name = f"eindecomp-{self._threads + 1}"
                Thread(target=self._serve, name=name, daemon=True).start()
                self._threads += 1
            self._offers.append(offer)
            self._offered.notify(offer.places)

    def _withdraw(self, offer: _Offer) -> None:
        """Let nobody join any more, and wait for those who have."""
        with self._left:
            if offer in self._offers:
                self._offers.remove(offer)
            while offer.helpers:
                self._left.wait()

    def _serve(self) -> None:
        while True:
            with self._offered:
                while not self._offers:
                    self._offered.wait()
                offer = self._offers[0]
                offer.helpers += 1
                offer.places -= 1
                if not offer.places:
                    self._offers.popleft()
            offer.job.work()
            with self._left:
                offer.helpers -= 1
                if not offer.helpers:
                    self._left.notify_all()
            del offer


WORKERS = Workers()
