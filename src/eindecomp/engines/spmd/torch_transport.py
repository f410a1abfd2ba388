"""Ranks over torch.distributed: `torchrun --nproc-per-node 8 script.py`.

Gloo carries arrays in the host's memory, and what ranks have to say; what goes between GPUs is
carried in `torch_arrays`.
"""

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

from eindecomp.engines.spmd.watch import GONE, look_at
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.spmd.exchange import PeerSpans

    Array = Any
    """NumPy's, or torch's tensor."""

dist: Any = torch.distributed  # whose types say less than its documentation

# Torch has had two names for it, of which it warns of the older one.
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GOING = 2.0  # seconds after its connections within which a process is gone


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

    def exchange(
        self, sends: PeerSpans, receives: PeerSpans, tag: int, group: tuple[int, ...] = ()
    ) -> Works:
        """Elements to other ranks and from them: gloo has no collective of parts of any size."""
        del group
        everybody = self._everybody
        coming = [
            dist.irecv(as_bytes(array), peer, everybody, tag) for peer, array in receives.parts()
        ]
        going = [dist.isend(as_bytes(array), peer, everybody, tag) for peer, array in sends.parts()]
        return Works([*coming, *going])

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

    def gather_counts(self, own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The integers of every rank."""
        found = torch.empty(self.size * own.size, dtype=torch.int64)
        ALL_GATHER(found, torch.from_numpy(own.copy()), self._everybody)
        return found.numpy().reshape(self.size, own.size)

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


def as_bytes(array: Array) -> torch.Tensor:
    """A flat array as its bytes, which every backend carries."""
    if isinstance(array, torch.Tensor):
        return array.view(torch.uint8)
    return torch.from_numpy(array.view(np.uint8))
