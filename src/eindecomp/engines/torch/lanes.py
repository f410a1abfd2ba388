"""Lanes: the streams of one GPU, or on the CPU one after another."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Lane:
    """Work that is done in order, beside that of other lanes where the device is a GPU."""

    def __init__(self, device: torch.device, *, current: bool = False) -> None:
        self.stream: Any = None
        if device.type == "cuda":
            own = torch.cuda.current_stream if current else torch.cuda.Stream
            self.stream = own(device)

    def work(self) -> AbstractContextManager[Any]:
        """What is begun inside is done in this lane."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def mark(self) -> Any:
        """A mark behind all that was begun so far."""
        return None if self.stream is None else self.stream.record_event()

    def wait(self, mark: Any) -> None:
        """Do what comes next only when a mark has been reached."""
        if self.stream is not None and mark is not None:
            self.stream.wait_event(mark)

    def finish(self) -> None:
        """Wait until all is done."""
        if self.stream is not None:
            self.stream.synchronize()
