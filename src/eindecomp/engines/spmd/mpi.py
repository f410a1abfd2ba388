"""Ranks over MPI, through mpi4py: `mpirun -n 8 python script.py`."""

from __future__ import annotations

from time import sleep
from typing import Any

import numpy as np
from mpi4py import MPI

from eindecomp.engines.spmd.exchange import PeerSpans
from eindecomp.errors import InputError
from eindecomp.lang.dtypes import Array

_UNITS = {
    1: (np.uint8, MPI.BYTE),
    2: (np.int16, MPI.INT16_T),
    4: (np.int32, MPI.INT32_T),
    8: (np.int64, MPI.INT64_T),
    16: (np.complex128, MPI.C_DOUBLE_COMPLEX),
}
"""Elements travel as bits, since MPI does not know all types. Counts are of elements, not bytes:
MPI's have 32 bits, which reach further so."""
_WATCH = 1
"""The tag of what watching threads tell each other."""


class MpiTransport:
    """All processes of an MPI job."""

    name = "mpi"

    def __init__(self) -> None:
        if not MPI.Is_initialized() or MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise InputError("engine 'spmd' needs an MPI that several threads may call")
        self._world = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._world.rank, self._world.size
        self._watchers = MPI.COMM_WORLD.Dup()
        self._posted: dict[int, MPI.Request] = {}

    def exchange(self, sends: PeerSpans, receives: PeerSpans, tag: int) -> Requests:
        """Send elements to other ranks and receive theirs."""
        coming = [self._world.Irecv(_all_of(array), peer, tag) for peer, array in receives.parts()]
        going = [self._world.Isend(_all_of(array), peer, tag) for peer, array in sends.parts()]
        return Requests([*coming, *going])

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        sizes = np.zeros(self.size, np.int64)
        _wait_idly(self._world.Iallgather(np.array([len(own)]), sizes))
        starts, into = np.cumsum(sizes) - sizes, np.empty(int(sizes.sum()), np.uint8)
        parts = [into, sizes.tolist(), starts.tolist(), MPI.BYTE]
        self._world.Allgatherv(np.frombuffer(own, np.uint8), parts)
        return [bytes(into[start : start + n]) for start, n in zip(starts, sizes, strict=True)]

    def gather_counts(self, own: Array) -> Array:
        """The integers of every rank."""
        rows = np.empty((self.size, own.size), own.dtype)
        self._world.Allgather(own, rows)
        return rows

    def post(self, state: bytes) -> None:
        """Tell all others; one that has not taken what it was told before is left alone."""
        for peer in range(self.size):
            before = self._posted.get(peer)
            if peer != self.rank and (before is None or before.Test()):
                own = np.frombuffer(state, np.uint8).copy()
                self._posted[peer] = self._watchers.Isend([own, MPI.BYTE], peer, _WATCH)

    def heard(self) -> dict[int, bytes]:
        """What ranks have told since this was asked last, the latest of each."""
        states: dict[int, bytes] = {}
        status = MPI.Status()
        while self._watchers.Iprobe(MPI.ANY_SOURCE, _WATCH, status):
            peer = status.Get_source()
            state = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            self._watchers.Recv([state, MPI.BYTE], peer, _WATCH)
            states[peer] = state.tobytes()
        return states

    def lost(self) -> list[int]:
        """None that would be known here: mpirun ends the job of a rank that has died."""
        return []

    def abort(self) -> None:
        """End all processes of the job."""
        MPI.COMM_WORLD.Abort(1)


class Requests:
    """Requests of MPI, and with them the arrays that they read and write."""

    __slots__ = ("_requests",)

    def __init__(self, requests: list[MPI.Request]) -> None:
        self._requests = requests

    def wait(self) -> None:
        """Wait for all of them."""
        MPI.Request.Waitall(self._requests)


def _wait_idly(request: MPI.Request) -> None:
    """Wait for a rank that may plan for minutes, and leave it the core, as waits of MPI do not."""
    pause = 1e-5
    while not request.Test():
        sleep(pause)
        pause = min(2 * pause, 1e-2)


def _bits(array: Array) -> tuple[Array, MPI.Datatype]:
    """A flat array as MPI sees it, and the type of its elements."""
    plain, unit = _UNITS[array.itemsize]
    return array.view(plain), unit


def _all_of(array: Array) -> list[Any]:
    bits, unit = _bits(array)
    return [bits, bits.size, unit]
