"""The one arena of an engine, which its paged executables use in turn."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

import torch

from eindecomp.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Generator

    from eindecomp.engines.torch.ready_region import BoundRegion


class ArenaMemory:
    """Memory of a device for one schedule at a time; the limit is on all that an engine takes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._memory: torch.Tensor | None = None
        self._user: object = None
        self.regions: dict[int, BoundRegion] = {}
        """Those of the user that have been carried out in it, with their tensors."""
        self._turn = RLock()
        self._in_use = False

    @contextmanager
    def turn(self) -> Generator[None]:
        """Wait until nobody uses the arena; whoever is inside has it alone."""
        with self._turn:
            if self._in_use:
                raise RunError("a listener cannot run the paged executable that it listens to")
            self._in_use = True
            try:
                yield
            finally:
                self._in_use = False

    def taken(self, user: object, nbytes: int) -> tuple[torch.Tensor, bool]:
        """The arena, and whether it is as the same user left it."""
        known = self._user is user and self._memory is not None
        if not known:
            self.regions.clear()
        if self._memory is None or len(self._memory) != nbytes:
            self.free()
            self._memory = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        self._user = user
        return self._memory, known

    def free(self, user: object = None) -> None:
        """Let go of the arena, and of all that torch keeps for later; or only if it is a user's."""
        if user is None or self._user is user:
            self.regions.clear()
            self._memory = self._user = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
