"""What moves when a tensor that is on the devices is wanted in another layout."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.engines.tensor import Tensor
from eindecomp.planner.space.cut import is_plain
from eindecomp.tra.boxes import volume
from eindecomp.tra.program.exchange import received
from eindecomp.tra.program.tiling import Tiling, uncut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.tra.program.program import Program


def layouts_placed(program: Program, name: str) -> tuple[Tiling, ...]:
    """The layouts in which an input is placed: those that its readers want, one of all of it first.

    Where they want parts of it only, or nothing, every device has the whole beside those.
    """
    shape = program.graph[name].shape
    wanted = [buffer.tiling for buffer in program.inputs[name]]
    whole = [tiling for tiling in wanted if _has_all(tiling, shape)]
    first = whole[0] if whole else Tiling(uncut(shape))
    return (first, *(tiling for tiling in wanted if tiling != first))


def _has_all(tiling: Tiling, shape: Sequence[int]) -> bool:
    """Whether every element of a tensor is on some device."""
    ends = [(span.start, span.stop) for span in tiling.cut]
    return ends == [(0, size) for size in shape] and is_plain(tiling.cut)


def placing_bytes(program: Program, name: str, given: object) -> int:
    """The bytes that devices receive before an input lies as its readers want it.

    An array is the caller's, and a tensor of another mesh goes through the caller's memory:
    neither is counted.
    """
    if not isinstance(given, Tensor) or given.mesh != program.mesh or program.devices == 1:
        return 0
    return sum(
        _elements(program.mesh, given.tilings[0], buffer.tiling) * buffer.item
        for buffer in program.inputs[name]
        if buffer.tiling not in given.tilings
    )


@lru_cache(maxsize=1 << 12)
def _elements(mesh: Mesh, held: Tiling, wanted: Tiling) -> int:
    return sum(
        volume(transfer.box)
        for device in range(mesh.devices)
        for transfer in received(mesh, held, wanted, device)
    )
