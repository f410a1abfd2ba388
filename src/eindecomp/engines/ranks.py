"""What the processes of a job do together: one of them says something, or all agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from eindecomp.errors import EinDecompError, InputError
from eindecomp.layout.boxes import volume

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.engines.tensor import Tensor
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling

    Array = np.ndarray[Any, Any]

T = TypeVar("T")


class Ranks(Protocol):
    """This process among those of its job. An engine that has several offers them as `ranks`."""

    @property
    def rank(self) -> int:
        """Which rank this process is."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        ...

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        ...

    def using_disk(self) -> AbstractContextManager[None]:
        """While this rank reads or writes files: it computes nothing, but is not stuck."""
        ...

    def waiting_for_input(self) -> AbstractContextManager[None]:
        """While this rank waits for somebody to type: it computes nothing, but is not stuck."""
        ...

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """What this rank is to write of a tensor, so that all ranks together write all of it."""
        ...


class Alone:
    """The only process of a job."""

    rank = 0
    size = 1

    def share_bytes(self, own: bytes | None) -> bytes:
        """What it has to say."""
        return own or b""

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What it has to say."""
        return [own]

    def using_disk(self) -> AbstractContextManager[None]:
        """Nobody waits for it."""
        return nullcontext()

    def waiting_for_input(self) -> AbstractContextManager[None]:
        """Nobody waits for it."""
        return nullcontext()

    def own_block(self, tensor: Tensor) -> tuple[Box, Array]:
        """All of a tensor."""
        return tuple((0, size) for size in tensor.shape), tensor.numpy()


def ranks_of(engine: object) -> Ranks:
    """The processes among which an engine runs."""
    return getattr(engine, "ranks", None) or Alone()


def common_token(ranks: Ranks) -> str:
    """A new name for what ranks write together."""
    return ranks.share_bytes(None if ranks.rank else token_hex(8).encode()).decode()


def agree(ranks: Ranks, do: Callable[[], T]) -> T:
    """Let every rank do its part, and wait for all; what keeps one from it is raised by all."""
    wrong: Exception | None = None
    found: T | None = None
    try:
        with ranks.using_disk():
            found = do()
    except Exception as error:  # of a disk, of a library: whoever waits for this rank must know
        wrong = error
    told = "" if wrong is None else _in_words(wrong, ranks)
    first = next((each for each in ranks.gather_bytes(told.encode()) if each), None)
    if first is not None:
        raise InputError(first.decode()) from wrong
    return cast("T", found)


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


@lru_cache(maxsize=1 << 12)
def writers(mesh: Mesh, tiling: Tiling) -> dict[Box, int]:
    """The blocks of a layout, and for each the first device that has it."""
    found: dict[Box, int] = {}
    for device in range(mesh.devices):
        box = tiling.box(mesh, device)
        if volume(box):
            found.setdefault(box, device)
    return found
