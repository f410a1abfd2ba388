"""Outputs that workers write to files, each its own tiles."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from eindecomp.engines.ray.blocks import Blocks, fetch
from eindecomp.engines.ray.cluster import note_recovery
from eindecomp.engines.whole_folder import beside, put_in_place, remove
from eindecomp.engines.write_outputs import can_write_at_once, create_file, write_block
from eindecomp.errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from eindecomp.engines.ray.submit import Ref, Submitting
    from eindecomp.engines.tensor import Tensor
    from eindecomp.layout.boxes import Box

    Array = np.ndarray[Any, Any]


_RETRIES = 2
"""How often a tile is written again when its worker dies: of what writing did, as likely as not."""


def write_outputs(
    submitting: Submitting, run: str, outputs: Mapping[str, Path], tensors: Mapping[str, Tensor]
) -> None:
    """Let workers write outputs of a run; a file is there when all of it is."""
    for name, path in outputs.items():
        part = beside(path, token_hex(8))
        try:
            _write(submitting, run, tensors[name], part, path)
            put_in_place(part, path)
        except (OSError, RunError) as error:
            why = getattr(error, "strerror", None) or str(error).removeprefix(f"{name}: ")
            raise InputError(f"outputs: {name} cannot be written to {path}: {why}") from error
        finally:
            remove(part)


def _write(submitting: Submitting, run: str, tensor: Tensor, part: Path, path: Path) -> None:
    blocks: Blocks = tensor.held()
    tiling, refs = next(iter(blocks.layouts.items()))
    tiles: dict[Box, tuple[int, Ref]] = {}
    for device, ref in enumerate(refs):
        if ref is not None:
            tiles.setdefault(tiling.box(tensor.mesh, device), (device, ref))
    create_file(part, path.suffix, tensor.shape, tensor.dtype, tiles)
    # Tiles that share a chunk are written one after another, each by its own worker.
    at_once = can_write_at_once(path, tensor.shape, tiles)
    done: list[Ref] = []
    for box, (device, ref) in tiles.items():
        before = () if at_once else done[-1:]
        what = f"writing of {tensor.name} by device {device}"
        order = run, what, str(part), path.suffix, box
        done += submitting.call(write_tile, device, *order, ref, *before, retries=_RETRIES)
    for ref in done:
        fetch(tensor.name, ref)


def write_tile(
    run: str, what: str, part: str, kind: str, box: Box, block: tuple[Array], *_: object
) -> tuple[()]:
    """In a worker: write a tile to a file that is there."""
    note_recovery(run, what)
    write_block(Path(part), kind, box, block[0])
    return ()
