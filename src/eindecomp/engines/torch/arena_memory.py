"""The one arena of an engine: its paged executables use it in turn, and results may stay in it."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING
from weakref import ref

import torch

from eindecomp.engines.tensor import Tensor as EngineTensor
from eindecomp.engines.torch.devices import empty_on
from eindecomp.engines.torch.host_memory import typed
from eindecomp.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from eindecomp.engines.torch.host_memory import HostMemory
    from eindecomp.engines.torch.ready_region import BoundRegion
    from eindecomp.layout.tiling import Tiling

    Blocks = dict[Tiling, list[torch.Tensor]]


class ArenaMemory:
    """Memory of a device for one schedule at a time; the limit is on all that an engine takes."""

    def __init__(self, device: torch.device, host: HostMemory) -> None:
        self.device, self.host = device, host
        self.user: object = None
        """Whose schedule was the last one."""
        self._memory: torch.Tensor | None = None
        self.regions: dict[int, BoundRegion] = {}
        """Those of the user that have been carried out in it, with their tensors."""
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
            self.regions.clear()
        if self._memory is None or len(self._memory) != nbytes:
            self.free()
            self._memory = empty_on(self.device, nbytes)
        self.user = user
        return self._memory, known

    def free(self, user: object = None) -> None:
        """Let go of the arena, and of all that torch keeps for later; or only if it is a user's."""
        if user is None or self.user is user:
            self.evacuate()
            self.regions.clear()
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
                known[id(block)] = self._copy(block) if self._has(block) else block
        return {tiling: [known[id(block)] for block in own] for tiling, own in blocks.items()}

    def _has(self, block: torch.Tensor) -> bool:
        arena = self._memory
        return arena is not None and (
            block.untyped_storage().data_ptr() == arena.untyped_storage().data_ptr()
        )

    def _copy(self, block: torch.Tensor) -> torch.Tensor:
        return typed(self.host.empty(block.nbytes), block.dtype, block.shape).copy_(block)


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
        """The blocks on the host, of which those are copies that lie in the arena."""
        if (memory := self.memory) is None:
            return self
        with memory.lock:
            if not self:
                raise InputError(
                    f"tensor {self.name!r} was donated or released: its memory is gone"
                )
            return memory.outside(self)


def leave_arena(given: object, but: ArenaMemory | None = None) -> None:
    """Move a tensor to the host if it lies in an arena, but not if that is this one."""
    data = given.data if isinstance(given, EngineTensor) else None
    if isinstance(data, Tenant) and (but is None or data.memory is not but):
        data.leave()
