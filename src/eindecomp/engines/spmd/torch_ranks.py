"""Ranks over torch.distributed with gloo: `torchrun --nproc-per-node 8 script.py`."""

from __future__ import annotations

import os
import signal
import socket
import struct
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed

from eindecomp.engines.spmd.processes import GONE, look_at
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.spmd.transport import Part, Span
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

dist: Any = torch.distributed  # whose types say less than its documentation
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GOING = 2.0  # seconds after its connections within which a process is gone
_FIRST_TAG = 1 << 20
"""Above the numbers of steps: messages that a collective is made of are counted from here."""


class TorchTransport:
    """All processes of a torchrun job, or the ranks of a process group that there is already."""

    name = "torch"

    def __init__(self) -> None:
        if not dist.is_available():
            raise InputError("this torch was built without torch.distributed")
        if not dist.is_initialized():
            _start()
        self._everybody = dist.new_group(backend="gloo")
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self._groups: dict[tuple[tuple[int, ...], ...], TorchGroup] = {}
        store = dist.distributed_c10d._get_default_store()
        self._board = dist.PrefixStore("eindecomp", store)
        self._seen: dict[int, bytes] = {}
        self._processes: list[tuple[str, int]] = [
            _process(text) for text in self.gather_bytes(_own_process())
        ]

    def group(self, groups: Sequence[tuple[int, ...]]) -> TorchGroup:
        """This rank's group; all are made by all, in one order, and only once."""
        key = tuple(groups)
        if key not in self._groups:
            made = [dist.new_group(list(ranks), backend="gloo") for ranks in groups]
            [place] = [k for k, ranks in enumerate(groups) if self.rank in ranks]
            self._groups[key] = TorchGroup(self, made[place], groups[place])
        return self._groups[key]

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part], tag: int) -> Works:
        """Flat arrays from rank to rank; receives are posted first."""
        group = self._everybody
        works: list[Any] = [
            dist.irecv(_bytes(array), peer, group, tag) for peer, array in receives if array.size
        ]
        works += [
            dist.isend(_bytes(array), peer, group, tag) for peer, array in sends if array.size
        ]
        return Works(works)

    def sums(self, dtype: DType, *, equal: bool) -> bool:
        """Whether groups add numbers of a type by themselves: only in parts of one size."""
        return equal and dtype in (np.dtype("float32"), np.dtype("float64"))

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        sizes = torch.zeros(self.size, dtype=torch.int64)
        dist.all_gather_single(sizes, torch.tensor([len(own)]), self._everybody)
        longest = int(sizes.max())
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(own)] = torch.from_numpy(np.frombuffer(own, np.uint8).copy())
        found = torch.empty(self.size * longest, dtype=torch.uint8)
        dist.all_gather_single(found, padded, self._everybody)
        rows: Array = found.numpy().reshape(self.size, longest)
        counts: Array = sizes.numpy()
        return [row[:n].tobytes() for row, n in zip(rows, counts, strict=True)]

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        size = torch.tensor([len(own or b"")])
        dist.broadcast(size, 0, self._everybody)
        text = torch.zeros(int(size), dtype=torch.uint8)
        if own is not None:
            text.numpy()[:] = np.frombuffer(own, np.uint8)
        dist.broadcast(text, 0, self._everybody)
        return text.numpy().tobytes()

    def total(self, counts: Array) -> Array:
        """The sum over all ranks of integers."""
        return self._reduced(counts, dist.ReduceOp.SUM)

    def most(self, counts: Array) -> Array:
        """The largest of all ranks, element by element, of integers."""
        return self._reduced(counts, dist.ReduceOp.MAX)

    def _reduced(self, counts: Array, op: Any) -> Array:
        found = torch.from_numpy(counts.copy())
        dist.all_reduce(found, op, self._everybody)
        return found.numpy()

    def post(self, state: bytes) -> None:
        """Tell all others, in the store by which the job was started."""
        self._board.set(f"rank {self.rank}", state)

    def heard(self) -> dict[int, bytes]:
        """What ranks have told since this was asked last."""
        found: dict[int, bytes] = {}
        for peer in range(self.size):
            name = f"rank {peer}"
            if peer == self.rank or not self._board.check([name]):
                continue
            state = bytes(self._board.get(name))
            if state != self._seen.get(peer):
                found[peer] = self._seen[peer] = state
        return found

    def lost(self) -> list[int]:
        """The ranks of this machine whose processes are gone; one that is going has a moment."""
        end = monotonic() + _GOING
        while not (found := self._gone()) and monotonic() < end:
            sleep(_GOING / 20)
        return found

    def _gone(self) -> list[int]:
        here = self._processes[self.rank][0]
        ranks = enumerate(self._processes)
        return [
            rank for rank, (host, process) in ranks if host == here and look_at(process) == GONE
        ]

    def abort(self) -> None:
        """End the ranks of this machine; the launcher then ends those of others."""
        own = self._processes[self.rank]
        for host, process in self._processes:
            if host == own[0] and process != own[1]:
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
        os._exit(1)


class TorchGroup:
    """A process group."""

    def __init__(self, transport: TorchTransport, group: Any, ranks: tuple[int, ...]) -> None:
        self._transport, self._group, self.ranks = transport, group, ranks
        self._tag = _FIRST_TAG

    def all_gather(self, own: Array | None, into: Array, counts: Sequence[int]) -> Works:
        """Every member's elements one after another into a flat array."""
        if own is not None and len(set(counts)) == 1:
            work = dist.all_gather_single(_bytes(into), _bytes(own), self._group, True)
            return Works([work])
        # gloo gathers equal parts only, and not in place.
        starts = [sum(counts[:k]) for k in range(len(counts))]
        spans = list(zip(starts, counts, strict=True))
        place = self.ranks.index(self._transport.rank)
        if own is None:
            return self.all_to_all(into, [spans[place]] * len(counts), into, spans)
        into[starts[place] : starts[place] + counts[place]] = own
        return self.all_to_all(own, [(0, own.size)] * len(counts), into, spans)

    def all_to_all(
        self, out: Array, out_spans: Sequence[Span], into: Array, into_spans: Sequence[Span]
    ) -> Works:
        """To each member the span of `out` that is its own, from each into that of `into`."""
        self._tag += 1
        others = [k for k, rank in enumerate(self.ranks) if rank != self._transport.rank]
        return self._transport.exchange(
            [(self.ranks[k], _part(out, out_spans[k])) for k in others if out_spans[k][1]],
            [(self.ranks[k], _part(into, into_spans[k])) for k in others if into_spans[k][1]],
            self._tag,
        )

    def reduce_scatter(self, out: Array, into: Array, counts: Sequence[int]) -> Works:
        """The sum of all members' arrays: of each member its own part."""
        del counts
        arrays = torch.from_numpy(into), torch.from_numpy(out)
        return Works([dist.reduce_scatter_single(*arrays, dist.ReduceOp.SUM, self._group, True)])


class Works:
    """What torch has under way."""

    __slots__ = ("_works",)

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        """Wait for all of it."""
        for work in self._works:
            work.wait()


def _start() -> None:
    if not dist.is_torchelastic_launched() and "RANK" not in os.environ:
        raise InputError(
            "engine 'spmd' over torch.distributed runs in a job that torchrun has started, "
            "as torchrun --nproc-per-node 2 script.py"
        )
    if os.environ.get("MASTER_ADDR") in _LOOPBACK:
        # All ranks are here: nobody outside is to reach them.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")


def _own_process() -> bytes:
    return struct.pack("q", os.getpid()) + socket.gethostname().encode()


def _process(text: bytes) -> tuple[str, int]:
    return text[8:].decode(), struct.unpack("q", text[:8])[0]


def _bytes(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.view(np.uint8))


def _part(array: Array, span: Span) -> Array:
    start, count = span
    return array[start : start + count]
