"""What the processes of a job do together: one of them says something, or all agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar, cast

from eindecomp.errors import EinDecompError, InputError

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.engines.tensor import Tensor
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]

T = TypeVar("T")


class Ranks:
    """This process among those of its job; as it is here, the only one.

    An engine that has several offers them as `ranks`.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        return [own]

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        return self.gather_bytes(own or b"")[0]

    def not_stuck(self) -> AbstractContextManager[None]:
        """While this rank uses files or waits for somebody to type, and so computes nothing."""
        return nullcontext()

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """What this rank is to write of a tensor, so that all ranks together write all of it."""
        return tuple((0, size) for size in tensor.shape), tensor.numpy()


def ranks_of(engine: object) -> Ranks:
    """The processes among which an engine runs."""
    return getattr(engine, "ranks", None) or Ranks()


def common_token(ranks: Ranks) -> str:
    """A new name for what ranks write together."""
    return ranks.share_bytes(None if ranks.rank else token_hex(8).encode()).decode()


def agree(ranks: Ranks, do: Callable[[], T]) -> T:
    """Let every rank do its part, and wait for all; what keeps one from it is raised by all."""
    wrong: Exception | None = None
    done: T | None = None
    try:
        with ranks.not_stuck():
            done = do()
    except Exception as error:  # of a disk, of a library: whoever waits for this rank must know
        wrong = error
    told = "" if wrong is None else _in_words(wrong, ranks)
    first = next((each for each in ranks.gather_bytes(told.encode()) if each), None)
    if first is not None:
        raise InputError(first.decode()) from wrong
    return cast("T", done)


def _in_words(error: Exception, ranks: Ranks) -> str:
    at = f" (rank {ranks.rank})" if ranks.size > 1 else ""
    if isinstance(error, EinDecompError):
        return f"{error}{at}"
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}{at}"
    return f"{type(error).__name__}: {error}{at}"


def at_first(ranks: Ranks, do: Callable[[], object]) -> None:
    """Let rank 0 do something while the others wait for it; what goes wrong is raised by all."""
    agree(ranks, do if ranks.rank == 0 else lambda: None)
