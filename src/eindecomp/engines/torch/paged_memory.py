"""The memory of paged executables: pinned blocks of the host, and one arena on the GPU.

A GPU copies from and to pinned memory on its own. Torch's own pinned memory comes in powers of two;
here memory is mapped, registered once, and used again when nobody has a tensor in it any more. The
arena is an engine's: its executables use it in turn, and results may stay in it.
"""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, cast
from weakref import WeakValueDictionary, finalize, ref

import numpy as np
import torch

from eindecomp.engines.tensor import Tensor as EngineTensor
from eindecomp.errors import InputError, RunError
from eindecomp.layout.tiling import Tiling

Blocks = dict[Tiling, list[torch.Tensor]]
"""For each layout of a tensor, every device's block of it."""

SMALL = 1 << 20  # bytes below which copying from memory that is not pinned is as fast


@dataclass(eq=False)
class HostMemory:
    """Blocks of host memory, pinned where there is a GPU."""

    pinned: bool
    _spare: dict[int, list[mmap.mmap]] = field(
        default_factory=lambda: defaultdict[int, list[mmap.mmap]](list)
    )

    def empty(self, nbytes: int) -> torch.Tensor:
        """A block of so many bytes with any contents, reused when no tensor has it any more."""
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        spare = self._spare[nbytes]
        block = spare.pop() if spare else self._mapped(nbytes)
        array = np.frombuffer(block, np.uint8, nbytes)
        finalize(array, spare.append, block)
        return torch.from_numpy(array)

    def copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor."""
        return typed(self.empty(tensor.nbytes), tensor.dtype, tensor.shape).copy_(tensor)

    def _mapped(self, nbytes: int) -> mmap.mmap:
        block = mmap.mmap(-1, nbytes)
        if self.pinned:
            tensor = torch.from_numpy(np.frombuffer(block, np.uint8, nbytes))
            register(tensor)
            finalize(block, _unregister, tensor.data_ptr())
        return block


class Pin:
    """Keeps the memory of a tensor of the host pinned where it is, as long as this lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.storage = tensor.untyped_storage()
        register(tensor)
        finalize(self, _unregister, tensor.data_ptr())


_PINS: WeakValueDictionary[range, Pin] = WeakValueDictionary()
"""The pages that are registered."""


def pinned(tensor: torch.Tensor, host: HostMemory) -> tuple[torch.Tensor, Pin | None]:
    """A tensor in pinned memory: itself, or a copy where it shares pages with another one.

    It stays so as long as the pin lives. Small ones are not worth it.
    """
    tensor = tensor.contiguous()
    if tensor.nbytes < SMALL or tensor.is_pinned():
        return tensor, None
    start, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    own = range(start // mmap.PAGESIZE, -(-end // mmap.PAGESIZE))
    pin = _PINS.get(own)
    if pin is None:
        if any(other.start < own.stop and own.start < other.stop for other in list(_PINS)):
            return host.copied(tensor), None
        pin = _PINS[own] = Pin(tensor)
    return tensor, pin


def register(tensor: torch.Tensor) -> None:
    """Pin a tensor's memory, which is not pinned yet."""
    cuda = cast("Any", torch.cuda.cudart())
    code = int(cuda.cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))
    if code:
        raise RunError(
            f"{tensor.nbytes:,} bytes of host memory cannot be pinned: CUDA error {code}"
        )


def _unregister(address: int) -> None:
    cuda = cast("Any", torch.cuda.cudart())
    cuda.cudaHostUnregister(address)


def typed(memory: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Bytes as elements of a type, in a shape."""
    return memory.view(dtype).view(tuple(shape))


class ArenaMemory:
    """Memory of a device for one schedule at a time; the limit is on all that an engine takes."""

    def __init__(self, device: torch.device, host: HostMemory) -> None:
        self.device, self.host = device, host
        self.user: object = None
        """Whose schedule was the last one."""
        self._memory: torch.Tensor | None = None
        self.regions: dict[int, Any] = {}
        """The regions of the user that have run in it, bound to their tensors."""
        self.graphs: dict[int, Any] = {}
        """What the user has captured of its work in it."""
        self._tenants: list[ref[Tenant]] = []
        self.lock = RLock()
        self._in_use = False

    @contextmanager
    def turn(self) -> Generator[None]:
        """Wait until nobody uses the arena; whoever is inside has it alone."""
        with self.lock:
            if self._in_use:
                raise RunError("a listener cannot run the paged executable that it listens to")
            self._in_use = True
            try:
                yield
            finally:
                self._in_use = False

    def taken(self, user: object, nbytes: int) -> tuple[torch.Tensor, bool]:
        """The arena, and whether it is as the same user left it."""
        known = self.user is user and self._memory is not None
        if not known:
            self.evacuate()
            self._forget()
        if self._memory is None or len(self._memory) != nbytes:
            self.free()
            self._memory = _empty_on(self.device, nbytes)
        self.user = user
        return self._memory, known

    def _forget(self) -> None:
        self.regions.clear()
        self.graphs.clear()

    def free(self, user: object = None) -> None:
        """Let go of the arena, and of all that torch keeps for later; or only if it is a user's."""
        if user is None or self.user is user:
            self.evacuate()
            self._forget()
            self._memory = self.user = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def housed(self, name: str, blocks: Blocks) -> Blocks:
        """The blocks of a result; if some lie in the arena, as a tenant of it."""
        if not any(self._has(block) for own in blocks.values() for block in own):
            return blocks
        tenant = Tenant(name, blocks, self)
        self._tenants.append(ref(tenant))
        return tenant

    def evacuate(self, but: Collection[Tenant] = ()) -> None:
        """Move what lies in the arena to the host, if anybody has it still."""
        with self.lock:
            staying = {id(tenant) for tenant in but}
            for each in self._tenants:
                tenant = each()
                if tenant and id(tenant) not in staying:  # an empty one was given up
                    tenant.leave()
            self._tenants = [ref(tenant) for tenant in but]

    def outside(self, blocks: Blocks) -> Blocks:
        """The same blocks, with copies on the host of those that lie in the arena."""
        known: dict[int, torch.Tensor] = {}
        for block in (block for own in blocks.values() for block in own):
            if id(block) not in known:
                known[id(block)] = self.host.copied(block) if self._has(block) else block
        return {tiling: [known[id(block)] for block in own] for tiling, own in blocks.items()}

    def _has(self, block: torch.Tensor) -> bool:
        arena = self._memory
        return arena is not None and (
            block.untyped_storage().data_ptr() == arena.untyped_storage().data_ptr()
        )


class Tenant(dict["Tiling", list[torch.Tensor]]):
    """The blocks of a result, some of which lie in the arena until that is used otherwise."""

    def __init__(self, name: str, blocks: Blocks, memory: ArenaMemory) -> None:
        super().__init__(blocks)
        self.name = name
        """Of the result."""
        self.memory: ArenaMemory | None = memory
        """None when nothing of it is in the arena any more."""

    def leave(self) -> None:
        """Move all blocks to the host, unless they are there."""
        if (memory := self.memory) is not None:
            with memory.lock:
                self.update(self.outside())
                self.memory = None

    def outside(self) -> Blocks:
        """The blocks on the host, with copies of those that lie in the arena."""
        if (memory := self.memory) is None:
            return self
        with memory.lock:
            if not self:
                raise InputError(
                    f"tensor {self.name!r} was donated or released: its memory is gone"
                )
            return memory.outside(self)


def leave_arena(given: object, but: ArenaMemory | None = None) -> None:
    """Move a tensor to the host if it lies in an arena other than `but`."""
    data = given.data if isinstance(given, EngineTensor) else None
    if isinstance(data, Tenant) and (but is None or data.memory is not but):
        data.leave()


def _empty_on(device: torch.device, nbytes: int) -> torch.Tensor:
    """So many bytes of a device, of any contents."""
    try:
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        free, _ = torch.cuda.mem_get_info(device)
        raise RunError(
            f"gpu_memory asks for {nbytes:,} bytes of {device}, of which {free:,} are free: "
            "others use the rest"
        ) from None
