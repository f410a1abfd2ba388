"""What moves when a tensor that is on the devices is wanted in another layout."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.engines.tensor import Tensor
from eindecomp.layout.boxes import volume
from eindecomp.tra.program.device_row import received

if TYPE_CHECKING:
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling
    from eindecomp.tra.program.program import Program


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
