"""Tiles that are torch's tensors, on the device of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.blocks import block_of
from eindecomp.engines.ranks import agree
from eindecomp.engines.spmd.nccl import NcclCarrier, check_own_gpus
from eindecomp.engines.spmd.pace import Pace
from eindecomp.engines.spmd.torch_ranks import TorchTransport
from eindecomp.engines.torch.devices import as_given, device_of
from eindecomp.errors import InputError
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.layout.boxes import shape_of

if TYPE_CHECKING:
    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.spmd.transport import Carrier, Transport
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box


class TorchArrays:
    """Torch's tensors on one device; they travel as bytes."""

    words_in = {size: size for size in (1, 2, 4, 8, 16)}  # noqa: RUF012 - nobody writes to it
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
    def in_one_piece(array: torch.Tensor) -> torch.Tensor:
        """A tensor that does so: itself, or a copy."""
        return array.contiguous()

    @staticmethod
    def words(array: torch.Tensor) -> torch.Tensor:
        """A tensor in one piece as its bytes: NCCL has no integers of two."""
        return array.reshape(-1).view(torch.uint8)

    @staticmethod
    def flat(count: int, like: torch.Tensor) -> torch.Tensor:
        """A new flat tensor of another's type, with anything in it."""
        return like.new_empty(count)

    def sources(self) -> tuple[_Fresh, _Fresh]:
        """Torch itself uses the memory of a GPU again."""
        return _Fresh(self.library), _Fresh(self.library)

    def neighbours(self) -> dict[int, int]:
        """None: memory that is read where it is belongs to NumPy's arrays."""
        return {}

    def settle(self) -> None:
        """Wait for the GPU to have done what it was told to."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def pace(self, watch: Watch) -> Pace | None:
        """What tells how far the GPU has come; the CPU is never behind."""
        return Pace(watch, self._mark) if self._device.type == "cuda" else None

    def _mark(self) -> torch.Event:
        return torch.cuda.current_stream(self._device).record_event()


class _Fresh:
    """New tensors whenever one is asked for."""

    def __init__(self, library: TorchLibrary) -> None:
        self._library = library

    def make(self, shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
        """A tensor with anything in it."""
        return self._library.empty(shape, dtype)

    def give(self, array: torch.Tensor) -> None:
        """Let go of it."""


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
        _NCCL[found] = NcclCarrier(transport.rank, transport.size, device)
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
