"""Tensors whose blocks Ray has: loading, moving and gathering them, and writing them to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.array_files import can_write_at_once, create_file, write_block
from eindecomp.engines.ray.cluster import note_recovery, ray_module, reason_of
from eindecomp.engines.ray.files import where_it_lies
from eindecomp.engines.ray.worker import cut_block, load_block, put_together
from eindecomp.engines.tensor import Tensor
from eindecomp.engines.whole_files import beside, put_in_place, remove
from eindecomp.errors import InputError, RunError
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.device_row import moves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.ray.cluster import Ref, Submitting
    from eindecomp.engines.ray.files import KeptFile, Stored
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.mesh import Mesh
    from eindecomp.tra.program.program import Program

    Array = np.ndarray[Any, Any]

_RETRIES = 2
"""How often a tile is written again when its worker dies: of what writing did, as likely as not."""
Write = Callable[[Any], "tuple[Stored, KeptFile]"]
"""Writes an array of the caller's to a file."""
Layouts = Mapping[Tiling, "Sequence[Ref | None]"]
"""For each layout every device's block of a tensor, None where it has nothing of it."""


@dataclass(frozen=True, slots=True)
class RayBlocks:
    """A tensor in Ray's object store, and what it can be computed again from."""

    layouts: Layouts
    kept: tuple[Any, ...]
    """The files and jobs that Ray would need again if a block were lost, oldest first."""


def tensor_of(program: Program, name: str, blocks: RayBlocks) -> Tensor:
    """A tensor of the graph, of blocks in at least one layout."""
    vertex, mesh = program.graph[name], program.mesh
    gather = partial(_gather, name, mesh, vertex.shape, vertex.dtype)
    layouts = tuple(blocks.layouts)
    return Tensor(name, vertex.shape, vertex.dtype, "ray", mesh, layouts, blocks, gather)


def load(submitting: Submitting, mesh: Mesh, source: Stored, wanted: Sequence[Tiling]) -> Layouts:
    """Read every device's block of an input; those that several have are read once."""
    loaded: dict[Box, Ref] = {}
    found: dict[Tiling, list[Ref | None]] = {}
    for tiling in wanted:
        found[tiling] = []
        for device in range(mesh.devices):
            box = tiling.box(mesh, device)
            if volume(box) and box not in loaded:
                [loaded[box]] = submitting.call(load_block, device, source, box)
            found[tiling].append(loaded[box] if volume(box) else None)
    return found


def source_of(given: Any, write: Write) -> tuple[Stored, tuple[Any, ...]]:
    """The file of an input: its own, or one that is written now, with what keeps that."""
    source = where_it_lies(given)
    if source is not None:
        return source, ()
    written, kept = write(given.numpy() if isinstance(given, Tensor) else given)
    return written, (kept,)


def in_layouts(
    submitting: Submitting, mesh: Mesh, given: Any, wanted: Sequence[Tiling], write: Write
) -> tuple[RayBlocks, int]:
    """An input in the wanted layouts, and the elements that devices receive for that."""
    if not isinstance(given, Tensor) or given.mesh != mesh:
        source, kept = source_of(given, write)
        return RayBlocks(load(submitting, mesh, source, wanted), kept), 0
    held: RayBlocks = given.held()
    layouts: dict[Tiling, Sequence[Ref | None]] = {}
    moved = 0
    for tiling in wanted:
        if tiling in held.layouts:
            layouts[tiling] = held.layouts[tiling]
        else:
            layouts[tiling], elements = rearrange(submitting, mesh, held.layouts, tiling)
            moved += elements
    return RayBlocks(layouts, held.kept), moved


def rearrange(
    submitting: Submitting, mesh: Mesh, layouts: Layouts, wanted: Tiling
) -> tuple[list[Ref | None], int]:
    """The blocks of another layout, and how many elements devices receive for that."""
    held, blocks = next(iter(layouts.items()))
    cut: dict[tuple[int, Box], Ref] = {}
    for device, block in enumerate(blocks):
        own = moves(mesh, held, wanted, device)
        boxes = list(dict.fromkeys(piece.box for piece in (*own.kept, *own.sends)))
        if block is None or not boxes:
            continue
        made = submitting.call(
            cut_block, device, block, held.box(mesh, device), boxes, results=len(boxes)
        )
        cut.update(zip(((device, box) for box in boxes), made, strict=True))
    found: list[Ref | None] = []
    elements = 0
    for device in range(mesh.devices):
        own = moves(mesh, held, wanted, device)
        pieces = (*own.kept, *own.receives)
        box = wanted.box(mesh, device)
        if not volume(box):
            found.append(None)
            continue
        refs = [cut[piece.peer, piece.box] for piece in pieces]
        found += submitting.call(put_together, device, box, [p.box for p in pieces], *refs)
        elements += own.elements_in
    return found, elements


def _gather(name: str, mesh: Mesh, shape: tuple[int, ...], dtype: Any, blocks: RayBlocks) -> Array:
    """One array of all blocks, which are fetched one at a time."""
    tiling, refs = next(iter(blocks.layouts.items()))
    whole = np.empty(shape, dtype)
    seen: set[Box] = set()
    for device, ref in enumerate(refs):
        box = tiling.box(mesh, device)
        if ref is None or box in seen:
            continue
        seen.add(box)
        [block] = fetch(name, ref)
        where = tuple(slice(low, high) for low, high in box) if box else ...
        whole[where] = block if block.dtype == dtype else block.view(dtype)
    return whole


def fetch(name: str, ref: Ref) -> tuple[Array, ...]:
    """A block, in the caller's process."""
    ray = ray_module()
    if not ray.is_initialized():
        raise InputError(f"tensor {name!r} is gone: the Ray that had it was shut down")
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        raise reason_of(error, name) from None


# Writing outputs


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
    blocks: RayBlocks = tensor.held()
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
