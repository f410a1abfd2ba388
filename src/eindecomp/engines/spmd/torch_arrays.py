"""Tiles that are torch's tensors, on the device of each rank, and NCCL, which moves them.

NCCL knows no tags: what two ranks send each other is matched by the order in which both begin with
it, which is that of the program. What a rank sends and receives in a step is begun as one, so that
no rank waits for another to begin.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.ranks import agree
from eindecomp.engines.spmd.torch_transport import TorchTransport, Works, as_bytes, dist
from eindecomp.engines.tensor import block_of
from eindecomp.engines.torch.devices import as_given, device_of
from eindecomp.errors import InputError
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.layout.boxes import shape_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.spmd.exchange import Carrier, PeerSpans, Transport
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box

_LONGEST = timedelta(days=1)
"""How long NCCL waits: it is for the watch to end a job that cannot go on."""


class TorchArrays:
    """Torch's tensors on one device; they travel as bytes."""

    stored = staticmethod(as_given)

    def __init__(self, device: torch.device, carrier: Carrier) -> None:
        self.library, self.carrier = TorchLibrary(device), carrier
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

    def make(self, shape: tuple[int, ...], dtype: DType, is_shared: bool) -> torch.Tensor:
        """A new tensor; torch itself uses the memory of a GPU again."""
        del is_shared
        return self.library.empty(shape, dtype)

    def give(self, array: torch.Tensor) -> None:
        """Leave it to torch."""

    def let_go(self) -> None:
        """Nothing is kept."""

    def neighbours(self) -> dict[int, int]:
        """None: memory that is read where it is belongs to NumPy's arrays."""
        return {}

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

    def exchange(
        self, sends: PeerSpans, receives: PeerSpans, tag: int, group: tuple[int, ...] = ()
    ) -> Works:
        """Elements to other ranks and from them, begun as one."""
        del tag, group
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
    found = tuple(ranks.gather_bytes(_identity(device).encode()))
    if b"cpu" in found:
        gpus = [str(rank) for rank, each in enumerate(found) if each != b"cpu"]
        if gpus:
            raise InputError(f"device: ranks {', '.join(gpus)} are on GPUs, the others on the CPU")
        return TorchArrays(device, transport)
    if found not in _NCCL:
        check_own_gpus(found)
        _NCCL[found] = NcclCarrier(transport.size, device)
    return TorchArrays(device, _NCCL[found])


def _identity(device: torch.device) -> str:
    """What a device is known by on all machines; all CPUs are alike."""
    cuda: Any = torch.cuda  # whose types know nothing of these
    return "cpu" if device.type == "cpu" else str(cuda.get_device_properties(device).uuid)


def device_of_rank(given: object, transport: TorchTransport) -> torch.device:
    """The device that was asked for; "cuda" is the GPU with the rank's number on its machine."""
    found = device_of(given, "spmd")
    if str(given).strip() != "cuda":
        return found
    local, there = transport.local_rank, torch.cuda.device_count()
    if local >= there:
        raise InputError(
            f"device='cuda': this machine has {there} GPU{'s' if there > 1 else ''} and at least "
            f"{local + 1} ranks, but NCCL wants one GPU a rank: start no more than {there} there"
        )
    return torch.device("cuda", local)
