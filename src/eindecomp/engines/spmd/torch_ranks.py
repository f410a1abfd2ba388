"""Ranks over torch.distributed: `torchrun --nproc-per-node 8 script.py`.

Gloo carries arrays in the host's memory, and what ranks have to say. Tiles may be torch's tensors
on a device of each rank, which NCCL moves between GPUs. NCCL knows no tags: what two ranks send
each other is matched by the order in which both begin with it, which is that of the program. What a
rank sends and receives in a step is begun as one, so that no rank waits for another to begin.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch
import torch.distributed

from eindecomp.engines.engine import Ranks, agree
from eindecomp.engines.spmd.exchange import Carrier, PeerSpans, Transport
from eindecomp.engines.spmd.watch import GONE, look_at
from eindecomp.engines.tensor import block_of
from eindecomp.engines.torch.devices import as_given, device_of
from eindecomp.errors import InputError
from eindecomp.kernels.library import KernelLibrary
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import DType
from eindecomp.layout.boxes import Box, shape_of

Array = Any
"""NumPy's, or torch's tensor."""

dist: Any = torch.distributed  # whose types say less than its documentation

# Torch has had two names for it, of which it warns of the older one.
ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_GOING = 2.0  # seconds after its connections within which a process is gone
_LONGEST = timedelta(days=1)
"""How long NCCL waits: it is for the watch to end a job that cannot go on."""


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
        told = self.gather_bytes(f"{os.getpid()} {socket.gethostname()}".encode())
        words = [text.decode().split(" ", 1) for text in told]
        self._processes = [(host, int(process)) for process, host in words]

    @property
    def local_rank(self) -> int:
        """Which of the ranks of its machine this process is, as its launcher says or as we see."""
        here = self._processes[self.rank][0]
        before = [host for host, _ in self._processes[: self.rank] if host == here]
        return int(os.environ.get("LOCAL_RANK", len(before)))

    def exchange(self, sends: PeerSpans, receives: PeerSpans, tag: int) -> Works:
        """Elements to other ranks and from them."""
        ranks = self._everybody
        coming = [dist.irecv(as_bytes(array), peer, ranks, tag) for peer, array in receives.parts()]
        going = [dist.isend(as_bytes(array), peer, ranks, tag) for peer, array in sends.parts()]
        return Works([*coming, *going])

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        sizes = torch.zeros(self.size, dtype=torch.int64)
        ALL_GATHER(sizes, torch.tensor([len(own)]), self._everybody)
        longest = int(sizes.max())
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(own)] = torch.from_numpy(np.frombuffer(own, np.uint8).copy())
        together = torch.empty(self.size * longest, dtype=torch.uint8)
        ALL_GATHER(together, padded, self._everybody)
        rows: np.ndarray[Any, Any] = together.numpy().reshape(self.size, longest)
        counts: np.ndarray[Any, Any] = sizes.numpy()
        return [row[:n].tobytes() for row, n in zip(rows, counts, strict=True)]

    def gather_counts(self, own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The integers of every rank."""
        together = torch.empty(self.size * own.size, dtype=torch.int64)
        ALL_GATHER(together, torch.from_numpy(own.copy()), self._everybody)
        return together.numpy().reshape(self.size, own.size)

    def post(self, state: bytes) -> None:
        """Tell all others, in the store by which the job was started."""
        self._board.set(f"rank {self.rank}", state)

    def heard(self) -> dict[int, bytes]:
        """What ranks have told since this was asked last."""
        states: dict[int, bytes] = {}
        for peer in range(self.size):
            name = f"rank {peer}"
            if peer == self.rank or not self._board.check([name]):
                continue
            state = bytes(self._board.get(name))
            if state != self._seen.get(peer):
                states[peer] = self._seen[peer] = state
        return states

    def lost(self) -> list[int]:
        """The ranks of this machine whose processes are gone; one that is going has a moment."""
        end = monotonic() + _GOING
        while not (gone := self._gone()) and monotonic() < end:
            sleep(_GOING / 20)
        return gone

    def _gone(self) -> list[int]:
        here = self._processes[self.rank][0]
        ranks = enumerate(self._processes)
        return [rank for rank, (host, own) in ranks if host == here and look_at(own) == GONE]

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


# Tiles on devices


class TorchArrays:
    """Torch's tensors on one device; they travel as bytes."""

    stored = staticmethod(as_given)

    def __init__(self, device: torch.device, carrier: Carrier) -> None:
        self.library: KernelLibrary = TorchLibrary(device)
        self.carrier = carrier
        self.kind = f"torch {device.type}"
        self._device = device

    def block(self, given: Any, box: Box, *, copy: bool) -> torch.Tensor:
        """A block of what was given: of torch's tensors it is copied from where they are."""
        if not isinstance(given, torch.Tensor):
            return self.library.from_numpy(block_of(given, box))
        part = given[tuple(slice(low, high) for low, high in box)]
        if not copy:
            return part.to(self._device).contiguous()
        made = torch.empty(shape_of(box), dtype=given.dtype, device=self._device)
        return made.copy_(part)

    def taken(self, block: Any) -> torch.Tensor:
        """A block of a tensor, which may be NumPy's or on another device."""
        if isinstance(block, torch.Tensor):
            return block.to(self._device)
        return self.library.from_numpy(block)

    @staticmethod
    def is_in_one_piece(array: torch.Tensor) -> bool:
        """Whether a tensor lies row by row, without gaps."""
        return array.is_contiguous()

    @staticmethod
    def flat(count: int, like: torch.Tensor) -> torch.Tensor:
        """A new flat tensor of another's type, with anything in it."""
        return like.new_empty(count)

    def make(self, shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
        """A new tensor; torch itself uses the memory of a GPU again."""
        return self.library.empty(shape, dtype)

    def give(self, array: torch.Tensor) -> None:
        """Leave it to torch."""

    def let_go(self) -> None:
        """Nothing is kept."""

    def settle(self) -> None:
        """Wait for the GPU to have done what it was told to."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()


class NcclCarrier:
    """All ranks of a job, each with a GPU of its own; they make it together."""

    def __init__(self, size: int, device: torch.device) -> None:
        if not dist.is_nccl_available():
            raise InputError("this torch was built without NCCL, which moves tensors between GPUs")
        torch.cuda.set_device(device)
        self._everybody = dist.new_group(list(range(size)), _LONGEST, "nccl")
        # It connects its members when they first use it, all of them.
        dist.all_reduce(torch.zeros(1, device=device), group=self._everybody)
        torch.cuda.synchronize(device)

    def exchange(self, sends: PeerSpans, receives: PeerSpans, tag: int) -> Works:
        """Elements to other ranks and from them, begun as one."""
        del tag
        operations = [(dist.irecv, *each) for each in receives.parts()]
        operations += [(dist.isend, *each) for each in sends.parts()]
        begun: list[Any] = [
            dist.P2POp(what, as_bytes(array), peer, self._everybody)
            for what, peer, array in operations
        ]
        arrays = [array for _, _, array in operations]
        return Works(dist.batch_isend_irecv(begun) if begun else [], arrays)


def check_own_gpus(gpus: Sequence[bytes]) -> None:
    """Refuse two ranks on one GPU; `gpus` names that of each."""
    first: dict[bytes, int] = {}
    for rank, gpu in enumerate(gpus):
        other = first.setdefault(gpu, rank)
        if other != rank:
            raise InputError(
                f"ranks {other} and {rank} are on one GPU ({gpu.decode()}): NCCL wants one GPU a "
                "rank; device='cuda' gives each its own"
            )


_NCCL: dict[tuple[bytes, ...], NcclCarrier] = {}
"""What moves tensors between the GPUs of all ranks, made once."""


def torch_arrays(given: object, transport: Transport, ranks: Ranks) -> TorchArrays:
    """Tensors on the device that was asked for; all ranks ask together."""
    assert isinstance(transport, TorchTransport)  # noqa: S101 - its name says so
    device = agree(ranks, lambda: device_of_rank(given, transport))
    cuda: Any = torch.cuda  # whose types know nothing of these
    is_cpu = device.type == "cpu"  # all of which are alike
    own = "cpu" if is_cpu else str(cuda.get_device_properties(device).uuid)
    devices = tuple(ranks.gather_bytes(own.encode()))
    if b"cpu" in devices:
        gpus = [str(rank) for rank, each in enumerate(devices) if each != b"cpu"]
        if gpus:
            raise InputError(f"device: ranks {', '.join(gpus)} are on GPUs, the others on the CPU")
        return TorchArrays(device, transport)
    if devices not in _NCCL:
        check_own_gpus(devices)
        _NCCL[devices] = NcclCarrier(transport.size, device)
    return TorchArrays(device, _NCCL[devices])


def device_of_rank(given: object, transport: TorchTransport) -> torch.device:
    """The device that was asked for; "cuda" is the GPU with the rank's number on its machine."""
    device = device_of(given, "spmd")
    if str(given).strip() != "cuda":
        return device
    local, there = transport.local_rank, torch.cuda.device_count()
    if local >= there:
        raise InputError(
            f"device='cuda': this machine has {there} GPU{'s' if there > 1 else ''} and at least "
            f"{local + 1} ranks, but NCCL wants one GPU a rank: start no more than {there} there"
        )
    return torch.device("cuda", local)
