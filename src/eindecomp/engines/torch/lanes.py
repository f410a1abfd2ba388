"""Lanes: the streams of one GPU and the threads that feed them, or on the CPU threads alone."""

from __future__ import annotations

from contextlib import nullcontext
from threading import Condition
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


class HostLane(Lane):
    """Work of the host's own, which is done when it was begun."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def wait(self, mark: Any) -> None:
        """Wait here: the host itself goes on when a mark has been reached."""
        if mark is not None:
            mark.synchronize()


class Marks:
    """The marks behind actions, for threads that wait for each other's.

    When one of them fails, all others stop at what they wait for next.
    """

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}
        self._changed = Condition()
        self.error: BaseException | None = None

    def set(self, action: int, mark: Any) -> None:
        """An action was begun."""
        with self._changed:
            self._found[action] = mark
            self._changed.notify_all()

    def get(self, action: int) -> Any:
        """The mark behind an action, as soon as that was begun."""
        with self._changed:
            self._changed.wait_for(lambda: action in self._found or self.error is not None)
            if self.error is not None:
                raise self.error
            return self._found[action]

    def fail(self, error: BaseException) -> None:
        """A thread ends; the error of the first one counts."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()
