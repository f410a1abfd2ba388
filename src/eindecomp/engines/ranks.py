"""What the processes of a job do together: one of them says something, or all agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from eindecomp.errors import EinDecompError, InputError
from eindecomp.tra.boxes import volume

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.engines.tensor import Tensor
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.tra.boxes import Box
    from eindecomp.tra.program.tiling import Tiling

    Array = np.ndarray[Any, Any]


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

    def own_block(self, tensor: Tensor) -> tuple[Box, Array]:
        """All of a tensor."""
        return tuple((0, size) for size in tensor.shape), tensor.numpy()


def ranks_of(engine: object) -> Ranks:
    """The processes among which an engine runs."""
    return getattr(engine, "ranks", None) or Alone()


def agree(ranks: Ranks, do: Callable[[], object]) -> None:
    """Let every rank do its part, and wait for all; what keeps one from it is raised by all."""
    wrong = b""
    try:
        with ranks.using_disk():
            do()
    except (EinDecompError, OSError) as error:
        why = error if isinstance(error, EinDecompError) or not error.strerror else error.strerror
        at = f" (rank {ranks.rank})" if ranks.size > 1 else ""
        named = getattr(error, "filename", None)
        wrong = f"{f'{named}: ' if named else ''}{why}{at}".encode()
    said = ranks.gather_bytes(wrong)
    first = next((each for each in said if each), None)
    if first is not None:
        raise InputError(first.decode(errors="replace"))


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
