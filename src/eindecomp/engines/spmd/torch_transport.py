"""Ranks over torch.distributed: `torchrun --nproc-per-node 8 script.py`.

Gloo carries arrays in the host's memory, and what ranks have to say. Groups are of whatever backend
carries their arrays: those between GPUs are in `torch_arrays`.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from contextlib import suppress
from itertools import accumulate
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.distributed

from eindecomp.engines.spmd.watch import GONE, look_at
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from eindecomp.engines.spmd.protocols import Part, Span

    Array = Any
    """NumPy's, or torch's tensor."""

dist: Any = torch.distributed  # whose types say less than its documentation

# Torch has had two names for it, of which it warns of the older one.
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GOING = 2.0  # seconds after its connections within which a process is gone
_FIRST_TAG = 1 << 20
"""Above the numbers of steps: messages that a collective is made of are counted from here."""


class TorchTransport:
    """All processes of a torchrun job, or the ranks of a process group that there is already."""

    name = "torch"
    gathers_in_place = False

    def __init__(self) -> None:
        if not dist.is_available():
            raise InputError("this torch was built without torch.distributed")
        if not dist.is_initialized():
            _start()
        self._everybody = dist.new_group(backend="gloo")
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self._groups: dict[tuple[tuple[int, ...], ...], TorchGroup] = {}
        self._tags: dict[tuple[int, ...], int] = {}
        """By the members of a group, the last tag of a collective that messages are made of."""
        store = dist.distributed_c10d._get_default_store()
        self._board = dist.PrefixStore("eindecomp", store)
        self._seen: dict[int, bytes] = {}
        self._processes: list[tuple[str, int]] = [
            _process(text) for text in self.gather_bytes(_own_process())
        ]

    @property
    def local_rank(self) -> int:
        """Which of the ranks of its machine this process is, as its launcher says or as we see."""
        here = self._processes[self.rank][0]
        before = [host for host, _ in self._processes[: self.rank] if host == here]
        return int(os.environ.get("LOCAL_RANK", len(before)))

    def group(self, groups: Sequence[tuple[int, ...]]) -> TorchGroup:
        """This rank's group; all are made by all, in one order, and only once."""
        key = tuple(groups)
        if key not in self._groups:
            self._groups[key] = TorchGroup(self, *own_group(groups, self.rank, "gloo"))
        return self._groups[key]

    def exchange(self, sends: Sequence[Part], receives: Sequence[Part], tag: int) -> Works:
        """Flat arrays from rank to rank; receives are posted first."""
        group = self._everybody
        works: list[Any] = [
            dist.irecv(as_bytes(array), peer, group, tag) for peer, array in receives if len(array)
        ]
        works += [
            dist.isend(as_bytes(array), peer, group, tag) for peer, array in sends if len(array)
        ]
        return Works(works)

    def all_to_all(self, group: TorchGroup, out: Sequence[Any], into: Sequence[Any]) -> Works:
        """A flat array to each other member of a group and one from each."""
        self._tags[group.ranks] = tag = self._tags.get(group.ranks, _FIRST_TAG) + 1
        sends, receives = (
            [part for part in zip(group.ranks, arrays, strict=True) if part[0] != self.rank]
            for arrays in (out, into)
        )
        return self.exchange(sends, receives, tag)

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        sizes = torch.zeros(self.size, dtype=torch.int64)
        ALL_GATHER(sizes, torch.tensor([len(own)]), self._everybody)
        longest = int(sizes.max())
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(own)] = torch.from_numpy(np.frombuffer(own, np.uint8).copy())
        found = torch.empty(self.size * longest, dtype=torch.uint8)
        ALL_GATHER(found, padded, self._everybody)
        rows: np.ndarray[Any, Any] = found.numpy().reshape(self.size, longest)
        counts: np.ndarray[Any, Any] = sizes.numpy()
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


# Groups


class Backend(Protocol):
    """What differs from backend to backend."""

    @property
    def rank(self) -> int:
        """Which rank this process is."""
        ...

    @property
    def gathers_in_place(self) -> bool:
        """Whether a member's part of an all-gather may be in its place already."""
        ...

    def all_to_all(self, group: TorchGroup, out: Sequence[Array], into: Sequence[Array]) -> Works:
        """A flat array to each member and one from each; none where there is nothing in it."""
        ...


class TorchGroup:
    """A process group."""

    def __init__(self, backend: Backend, group: Any, ranks: tuple[int, ...]) -> None:
        self._backend, self.group, self.ranks = backend, group, ranks
        self._place = ranks.index(backend.rank)

    def all_gather(self, own: Array | None, into: Array, counts: Sequence[int]) -> Works:
        """Every member's elements one after another into a flat array."""
        start, count = sum(counts[: self._place]), counts[self._place]
        mine = _part(into, (start, count))
        if len(set(counts)) == 1 and (own is not None or self._backend.gathers_in_place):
            parts = as_bytes(into), as_bytes(mine if own is None else own)
            return Works([ALL_GATHER(*parts, self.group, True)], parts)
        # Backends gather parts of one size only.
        if own is not None:
            mine[...] = own
        spans = list(zip(accumulate(counts, initial=0), counts, strict=False))
        nothing = spans[self._place] = (start, 0)
        sent = [nothing if k == self._place else (start, count) for k in range(len(counts))]
        return self.all_to_all(into, sent, into, spans)

    def all_to_all(
        self, out: Array, out_spans: Sequence[Span], into: Array, into_spans: Sequence[Span]
    ) -> Works:
        """To each member the span of `out` that is its own, from each into that of `into`."""
        parts = [_part(out, span) for span in out_spans], [_part(into, span) for span in into_spans]
        return self._backend.all_to_all(self, *parts)


class Works:
    """What torch has under way, and with it the arrays that it reads and writes."""

    __slots__ = ("_arrays", "_works")

    def __init__(self, works: list[Any], arrays: Sequence[Array] = ()) -> None:
        self._works, self._arrays = works, arrays

    def wait(self) -> None:
        """Wait for all of it; on a GPU, only the GPU does."""
        for work in self._works:
            work.wait()
        self._arrays = ()


def own_group(
    groups: Sequence[tuple[int, ...]], rank: int, backend: str, timeout: timedelta | None = None
) -> tuple[Any, tuple[int, ...]]:
    """A rank's group of several, and its members; all are made by all ranks, in one order."""
    made = [dist.new_group(list(ranks), timeout, backend) for ranks in groups]
    [place] = [k for k, ranks in enumerate(groups) if rank in ranks]
    return made[place], groups[place]


def as_bytes(array: Array) -> torch.Tensor:
    """A flat array as its bytes, which every backend carries."""
    if isinstance(array, torch.Tensor):
        return array.view(torch.uint8)
    return torch.from_numpy(array.view(np.uint8))


def _part(array: Array, span: Span) -> Array:
    start, count = span
    return array[start : start + count]
