"""Tensors on Ray: inputs in files, blocks in its object store; loading, moving, gathering, writing.

Inputs are in files that every worker can read again, also after others were lost. A block travels
as a tuple of plain arrays, one for each number of a partial result, that Ray shares between the
processes of a machine without copying.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import prod
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from eindecomp.engines.array_files import can_write_at_once, create_file, write_block
from eindecomp.engines.ray.cluster import Ref, Submitting, note_recovery, ray_module, reason_of
from eindecomp.engines.tensor import Tensor, block_of
from eindecomp.engines.whole_files import beside, put_in_place, remove
from eindecomp.errors import InputError, RunError
from eindecomp.lang.dtypes import BFLOAT16, Array, DType
from eindecomp.layout.boxes import Box, shape_of, volume, within
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.device_row import moves
from eindecomp.tra.program.program import Program

Block = tuple[Array, ...]

_SLAB = 1 << 26  # bytes that are copied at a time
_RETRIES = 2
"""How often a tile is written again when its worker dies: of what writing did, as likely as not."""
Write = Callable[[Any], "tuple[Stored, KeptFile]"]
"""Writes an array of the caller's to a file."""
BlockRefs = Mapping[Tiling, "Sequence[Ref | None]"]
"""For each layout every device's block of a tensor, None where it has nothing of it."""


# Arrays in files


@dataclass(frozen=True, slots=True)
class MappedArray:
    """An array whose elements lie in a file as they would in memory."""

    path: str
    shape: tuple[int, ...]
    dtype: DType
    offset: int
    """The place of the first element in the file."""
    strides: tuple[int, ...]

    def open(self) -> Array:
        """The array, mapped into memory."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        with _reading(self.path):
            whole = np.memmap(self.path, np.uint8, "r")
            return np.ndarray(self.shape, self.dtype, whole, self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class ZarrArray:
    """An array of a zarr store in a folder."""

    folder: str
    name: str

    def open(self) -> Any:
        """The array, of which chunks are read as they are asked for."""
        import zarr

        with _reading(f"{self.folder}/{self.name}"):
            return zarr.open_array(self.folder, path=self.name, mode="r")


Stored = MappedArray | ZarrArray
"""An array in a file, by its place; it is small, and is sent to workers."""


@contextmanager
def _reading(path: str) -> Generator[None]:
    """Says where a file that cannot be read is missing."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read on {socket.gethostname()}: {error}; the files of "
            "inputs must be where every node can read them while their results are used"
        ) from error


def where_it_lies(given: Any) -> Stored | None:
    """The file in which an array lies already, if it does."""
    if isinstance(given, np.ndarray):
        return _mapped(given)  # pyright: ignore[reportUnknownArgumentType]
    root = getattr(getattr(given, "store", None), "root", None)
    if type(given).__module__.partition(".")[0] == "zarr" and isinstance(root, Path):
        return ZarrArray(str(root.resolve()), str(given.path))
    return None


def _mapped(array: Array) -> MappedArray | None:
    """Where a view of a memory-mapped file lies in it."""
    first: Any = array
    while isinstance(first, np.ndarray) and isinstance(first.base, np.ndarray):
        first = first.base
    if not isinstance(first, np.memmap) or first.filename is None or first.mode == "c":
        return None
    begin = first.__array_interface__["data"][0] - first.offset
    offset = array.__array_interface__["data"][0] - begin
    path = str(Path(first.filename).resolve())
    return MappedArray(path, array.shape, array.dtype, offset, array.strides)


class KeptFile:
    """A file that is there for as long as somebody has this."""

    def __init__(self, folder: Folder, path: Path, size: int) -> None:
        self.folder, self.size = folder, size  # the folder goes with the last of its files
        self._delete = weakref.finalize(self, path.unlink, missing_ok=True)


class Folder:
    """A folder of the engine's own, in which arrays of the caller's are written for the workers."""

    def __init__(self, above: str | None) -> None:
        try:
            made = tempfile.mkdtemp(prefix="eindecomp-", dir=above)
        except OSError as error:
            raise InputError(f"directory: {above!r} cannot be written to: {error}") from None
        self.path = Path(made).resolve()
        self._numbers = count()
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def write(self, array: Any) -> tuple[MappedArray, KeptFile]:
        """Write an array, or what gives arrays for slices, a few rows at a time."""
        shape, dtype = tuple(int(size) for size in array.shape), np.dtype(array.dtype)
        path = self.path / f"{next(self._numbers)}.array"
        strides = tuple(dtype.itemsize * prod(shape[k + 1 :]) for k in range(len(shape)))
        rows, size = shape[0] if shape else 1, dtype.itemsize * prod(shape)
        kept = KeptFile(self, path, size)
        step = max(1, _SLAB * rows // size) if size else 1
        with path.open("wb") as opened:
            for low in range(0, rows if size else 0, step):
                sides = ((low, min(low + step, rows)), *((0, n) for n in shape[1:]))
                block = block_of(array, sides if shape else ())
                opened.write(block.reshape(-1).view(np.uint8).data)
        return MappedArray(str(path), shape, dtype, 0, strides), kept

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._remove()


# Blocks


@dataclass(frozen=True, slots=True)
class RayBlocks:
    """A tensor in Ray's object store, and what it can be computed again from."""

    layouts: BlockRefs
    kept: tuple[Any, ...]
    """The files and jobs that Ray would need again if a block were lost, oldest first."""


def tensor_of(program: Program, name: str, blocks: RayBlocks) -> Tensor:
    """A tensor of the graph, of blocks in at least one layout."""
    vertex, mesh = program.graph[name], program.mesh
    gather = partial(_gather, name, mesh, vertex.shape, vertex.dtype)
    layouts = tuple(blocks.layouts)
    return Tensor(name, vertex.shape, vertex.dtype, "ray", mesh, layouts, blocks, gather)


def load(submitting: Submitting, mesh: Mesh, source: Stored, wanted: Sequence[Tiling]) -> BlockRefs:
    """Read every device's block of an input; those that several have are read once."""
    loaded: dict[Box, Ref] = {}
    layouts: dict[Tiling, list[Ref | None]] = {}
    for tiling in wanted:
        layouts[tiling] = []
        for device in range(mesh.devices):
            box = tiling.box(mesh, device)
            if volume(box) and box not in loaded:
                [loaded[box]] = submitting.call(load_block, device, source, box)
            layouts[tiling].append(loaded[box] if volume(box) else None)
    return layouts


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
    submitting: Submitting, mesh: Mesh, layouts: BlockRefs, wanted: Tiling
) -> tuple[list[Ref | None], int]:
    """The blocks of another layout, and how many elements devices receive for that."""
    held, blocks = next(iter(layouts.items()))
    cut: dict[tuple[int, Box], Ref] = {}
    for device, block in enumerate(blocks):
        own = moves(mesh, held, wanted, device)
        boxes = list(dict.fromkeys(piece.box for piece in (*own.kept, *own.sends)))
        if block is None or not boxes:
            continue
        where = held.box(mesh, device)
        made = submitting.call(cut_block, device, block, where, boxes, results=len(boxes))
        cut.update(zip(((device, box) for box in boxes), made, strict=True))
    rearranged: list[Ref | None] = []
    elements = 0
    for device in range(mesh.devices):
        own = moves(mesh, held, wanted, device)
        pieces = (*own.kept, *own.receives)
        box = wanted.box(mesh, device)
        if not volume(box):
            rearranged.append(None)
            continue
        refs = [cut[piece.peer, piece.box] for piece in pieces]
        rearranged += submitting.call(put_together, device, box, [p.box for p in pieces], *refs)
        elements += own.elements_in
    return rearranged, elements


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


# What workers do with blocks: each function here is a Ray task


def load_block(source: Stored, box: Box) -> Block:
    """A block of an input, from its file."""
    return packed((block_of(source.open(), box),))


def cut_block(block: Block, box: Box, pieces: Sequence[Box]) -> Any:
    """Pieces of a block."""
    cut = [packed(tuple(array[within(piece, box)] for array in block)) for piece in pieces]
    return cut[0] if len(cut) == 1 else tuple(cut)


def put_together(box: Box, boxes: Sequence[Box], *pieces: Block) -> Block:
    """A block of its pieces."""
    whole = np.empty(shape_of(box), pieces[0][0].dtype)
    for piece, where in zip(pieces, boxes, strict=True):
        whole[within(where, box)] = piece[0]
    return (whole,)


def packed(block: Block) -> Block:
    """Arrays as Ray shares them without copying: contiguous, and of a type that NumPy knows."""
    plain = (np.ascontiguousarray(array).reshape(array.shape) for array in block)
    return tuple(a.view(np.uint16) if a.dtype == BFLOAT16 else a for a in plain)


def unpacked(block: Block, types: Sequence[DType]) -> Block:
    """A block as it was before it was packed."""
    typed = zip(block, types, strict=True)
    return tuple(array if array.dtype == dtype else array.view(dtype) for array, dtype in typed)
