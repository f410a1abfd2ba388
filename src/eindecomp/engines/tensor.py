"""`Tensor`: data that stays on an engine's devices, between runs and from one plan to another.

Engines whose devices hold blocks of NumPy arrays find here how arrays are cut into blocks and how
blocks are put together again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import compress
from operator import call, is_not
from typing import Any
from weakref import ref

import numpy as np

from eindecomp.errors import EinDecompError, InputError
from eindecomp.kernels.library import library_of
from eindecomp.lang.dtypes import Array, DType
from eindecomp.layout.boxes import Box, shape_of, volume
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.device_row import received
from eindecomp.tra.program.program import Program

Blocks = dict[Tiling, list[Array]]
"""For each layout of a tensor every device's block of it."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Tensor:
    """A tensor on the devices, in the layouts of the plan that placed or made it.

    It can be given as an input again and again; `numpy()` and `np.asarray` gather it, `array()` and
    DLPack do so without leaving the engine's devices where it has arrays of its own.

    Attributes:
        name: That of the input or output, such as `"W"`.
        shape: Its sizes, such as `(8, 8)`.
        dtype: The type of its items, such as `float32`.
        engine: The engine on whose devices it lies, such as `"threads"`.
        mesh: The devices' axes, such as `mesh.devices` of them.
        tilings: The layouts in which it lies, such as `tilings[0]`.
        data: The engine's own; `None` once it was released or its memory was donated.
        gather: Makes one array of `data`, such as `gather(data)`.
        own: Makes one array of the engine's own kind, `None` if that is NumPy's.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> graph = ed.parse("input X[i: 4]\\nZ[i] <- X[i] * 2\\noutput Z")
        >>> ed.compile(ed.plan(graph, 2)).place({"X": np.ones(4, "float32")})["X"]
        <Tensor X[4] float32 on threads>
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    engine: str
    mesh: Mesh
    tilings: tuple[Tiling, ...]
    data: Any
    gather: Callable[[Any], Array]
    own: Callable[[Any], Any] | None = None

    def numpy(self) -> Array:
        """The whole tensor as one array; engines that share memory with the caller do not copy."""
        return self.gather(self.held())

    def array(self) -> Any:
        """The whole tensor as one array of the engine's own kind.

        Where it lies in one piece that is the tensor's own memory, otherwise a copy: do not write
        to it, and copy what must outlast the tensor.
        """
        return self.numpy() if self.own is None else self.own(self.held())

    def held(self) -> Any:
        """The engine's data, if it is there still."""
        if self.data is None:
            raise InputError(f"tensor {self.name!r} was donated or released: its memory is gone")
        return self.data

    def release(self) -> None:
        """Let go of the memory."""
        self.data = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array().__dlpack_device__()

    def __repr__(self) -> str:
        state = "" if self.data is not None else ", released"
        return f"<Tensor {self.name}{list(self.shape)} {self.dtype} on {self.engine}{state}>"


_NOBODY = object()


class Remembered:
    """What was given last at each of some places; nothing is kept alive by that.

    A model has hundreds of inputs, most of which are the same in every call: `changed` finds the
    others in few steps.
    """

    def __init__(self, count: int) -> None:
        self._refs: list[Callable[[], Any]] = [lambda: _NOBODY] * count

    def changed(self, given: Sequence[object]) -> Iterable[int]:
        """The places at which something else was given last.

        >>> class Weight: pass
        >>> known, one, other = Remembered(2), Weight(), Weight()
        >>> known.note(0, one)
        >>> [*known.changed([one, other])], [*known.changed([None, one])]
        ([1], [0, 1])
        """
        return compress(range(len(self._refs)), map(is_not, given, map(call, self._refs)))

    def note(self, place: int, given: Any) -> None:
        """Remember what was given at a place."""
        self._refs[place] = ref(given)


# Blocks of arrays


def block_of(array: Any, box: Box) -> Array:
    """A copy of a block of an array, of which nothing else is read.

    It lies row by row, however the array does: kernels round alike only where arrays lie alike.

    >>> block_of(np.arange(6).reshape(2, 3), ((0, 2), (1, 2)))
    array([[1],
           [4]])
    """
    if not volume(box):
        return np.empty(shape_of(box), array.dtype)
    with reading_input("an input"):
        where = tuple(slice(low, high) for low, high in box) if box else ...
        return np.array(array[where], order="C")


@contextmanager
def reading_input(what: str) -> Generator[None]:
    """Names an input in an error of its storage, as of a file that was closed or a lost disk."""
    try:
        yield
    except EinDecompError:
        raise
    except Exception as error:
        raise InputError(f"{type(error).__name__}: {error}, when {what} was read") from error


def as_numpy(block: object) -> Array:
    """A block of any kernel library's kind of array as NumPy's."""
    return library_of(type(block)).to_numpy(block)


def cut_into_blocks(mesh: Mesh, tiling: Tiling, array: Any) -> list[Array]:
    """Every device's own copy of its block of an array."""
    return [block_of(array, tiling.box(mesh, device)) for device in range(mesh.devices)]


def tensor_of_blocks(program: Program, engine: str, name: str, blocks: Blocks) -> Tensor:
    """A tensor of the graph that lies in blocks of NumPy arrays, in at least one layout."""
    vertex, mesh = program.graph[name], program.mesh
    gather = partial(_gather, mesh, vertex.shape, vertex.dtype)
    return Tensor(name, vertex.shape, vertex.dtype, engine, mesh, tuple(blocks), blocks, gather)


def place_in_blocks(program: Program, engine: str, name: str, given: Any) -> Tensor:
    """An input in the layouts that a program wants, from an array or from a tensor of blocks.

    A tensor that lies otherwise goes through one array of the caller's process; an engine whose
    devices can reach each other moves the blocks itself.
    """
    wanted = program.layouts_of(name)
    if isinstance(given, Tensor):
        if given.mesh == program.mesh and set(wanted) <= set(given.tilings):
            return replace(given, name=name)  # it outlives the one that was given
        given = given.numpy()
    blocks = {tiling: cut_into_blocks(program.mesh, tiling, given) for tiling in wanted}
    return tensor_of_blocks(program, engine, name, blocks)


def _gather(mesh: Mesh, shape: tuple[int, ...], dtype: Any, blocks: Blocks) -> Array:
    """One array of all blocks; every element is on some device."""
    tiling, arrays = next(iter(blocks.items()))
    whole = np.empty(shape, dtype)
    for device, array in enumerate(arrays):
        box = tiling.box(mesh, device)
        if volume(box):
            whole[tuple(slice(low, high) for low, high in box)] = array
    return whole


def placing_bytes(program: Program, name: str, given: object) -> int:
    """The bytes that devices receive before an input lies as its readers want it.

    An array is the caller's, and a tensor of another mesh goes through the caller's memory:
    neither is counted.
    """
    if not isinstance(given, Tensor) or given.mesh != program.mesh or program.devices == 1:
        return 0
    held = given.tilings[0]
    others = (each for each in program.inputs[name] if each.tiling not in given.tilings)
    return sum(_elements(program.mesh, held, each.tiling) * each.item for each in others)


@lru_cache(maxsize=1 << 12)
def _elements(mesh: Mesh, held: Tiling, wanted: Tiling) -> int:
    every = (received(mesh, held, wanted, device) for device in range(mesh.devices))
    return sum(volume(transfer.box) for transfers in every for transfer in transfers)
