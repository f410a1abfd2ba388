"""What users give to a graph and ask of it: inputs are read and checked, outputs must be there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eindecomp.errors import GraphError, InputError, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import BFLOAT16, Array, DType, Kind, ScalarTypes, kind, type_names

_NAMED = 5  # tensors that one message names


def check_outputs(graph: Graph) -> None:
    """Raise `GraphError` for a graph that declares no output: nothing would be computed."""
    if graph.outputs:
        return
    read = {name for vertex in graph.vertices.values() for name in vertex.inputs}
    made = [v.name for v in graph.vertices.values() if not isinstance(v.op, Input)]
    last = [name for name in made if name not in read] or list(graph.vertices)
    if not last:
        raise GraphError("the graph is empty: it has no output")
    names = ", ".join(last[:_NAMED]) + (", …" if len(last) > _NAMED else "")
    raise GraphError(
        f"the graph declares no output, so there is nothing to compute: write `output {last[-1]}` "
        f"in its text or call graph.output({last[-1]!r}); nothing reads {names}"
    )


def check_known(inputs: Mapping[str, object], expected: Collection[str]) -> None:
    """Raise `InputError` if anything else is given, or not by name."""
    if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"inputs must be given by name, as a dict; got {type(inputs).__name__}")
    if all(map(expected.__contains__, inputs)):
        return
    for name in inputs:
        if name not in expected:
            near = suggest(str(name), [*expected])
            raise InputError(f"{name!r} is not an input of the graph{near}")


def check_names(inputs: Mapping[str, object], expected: Collection[str]) -> None:
    """Raise `InputError` unless exactly these inputs and scalars are given."""
    check_known(inputs, expected)
    if len(inputs) == len(expected):
        return
    missing = ", ".join(name for name in expected if name not in inputs)
    raise InputError(f"missing inputs: {missing}")


# One array


def to_array(given: object, vertex: Vertex) -> Array:
    """Read an array for an input vertex; a type of the same or a lower kind is converted."""
    array = read_array(given, repr(vertex.name))
    if array.shape != vertex.shape:
        raise InputError(f"input {vertex} has shape {vertex.shape}, got {array.shape}")
    return _convert(array, vertex.dtype, f"input {vertex}")


def to_stored(given: Any, vertex: Vertex) -> Any:
    """Like `to_array`, but what is stored elsewhere stays there, to be read by tiles.

    Such an array has a shape and a dtype, and gives NumPy arrays for slices.
    """
    if type(given) is np.ndarray and given.dtype is vertex.dtype and given.shape == vertex.shape:
        return given  # as most are, again and again
    what = f"input {vertex}"
    try:
        stored = hasattr(given, "chunks") or _is_mapped(given) or _only_slices(given)
        shape, dtype = (tuple(given.shape), given.dtype) if stored else ((), None)
    except Exception as error:  # as of a file that was closed
        raise InputError(f"{what} cannot be read: {type(error).__name__}: {error}") from error
    if not stored:
        return to_array(given, vertex)
    if shape != vertex.shape:
        raise InputError(f"{what} has shape {vertex.shape}, got {shape}")
    try:
        none = np.empty(0, dtype)
    except TypeError:
        raise InputError(f"{what} has dtype {vertex.dtype}, got {dtype}") from None
    if none.dtype == vertex.dtype:
        return np.asarray(given) if _is_mapped(given) else given
    _convert(none, vertex.dtype, what)  # refuses what would lose information
    return _Converted(given, vertex.shape, vertex.dtype, what)


@dataclass(frozen=True, slots=True)
class _Converted:
    """A stored array of another type, each tile of which is converted as it is read."""

    stored: Any
    shape: tuple[int, ...]
    dtype: DType
    what: str

    @property
    def chunks(self) -> Any:
        """How it is stored."""
        return getattr(self.stored, "chunks", None)

    def __getitem__(self, where: Any) -> Array:
        return _convert(np.asarray(self.stored[where]), self.dtype, self.what)


def _is_mapped(given: object) -> bool:
    return isinstance(given, np.memmap)


def _only_slices(given: Any) -> bool:
    """Whether an array can be read by its slices and in no other way."""
    if any(hasattr(given, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return False
    return all(hasattr(given, name) for name in ("shape", "dtype", "__getitem__"))


def to_scalars(given: Mapping[str, object], types: ScalarTypes) -> dict[str, Any]:
    """Read the numbers that are given for run-time scalars."""
    scalars: dict[str, Any] = {}
    for name, dtype in types.items():
        array = read_array(given[name], repr(name))
        if array.shape != ():
            raise InputError(
                f"scalar {name!r} must be a single number, got an array of shape {array.shape}"
            )
        # A Python number is weak: it must not overflow a type of which only the kind counts.
        scalars[name] = _convert(array, dtype, f"scalar {name!r}").item()
    return scalars


def read_array(given: object, name: str) -> Array:
    """Read what a user gives as an array, in the machine's own byte order."""
    array = given if type(given) is np.ndarray else _read(given, name)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _read(given: object, name: str) -> Array:
    if isinstance(given, np.generic | int | float):
        return np.asarray(given)
    if isinstance(given, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: fill it first")
    try:
        given = _plain(given)
        if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
            return np.from_dlpack(given)  # pyright: ignore[reportArgumentType]
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputError(f"{name} cannot be read as an array: {error}") from error


def _plain(given: Any) -> Any:
    """What NumPy can read of a tensor it cannot read itself: torch's bfloat16 and gradients."""
    if _only_slices(given):
        return given[...]
    if getattr(given, "requires_grad", False):
        given = given.detach()
    if str(getattr(given, "dtype", "")) == "torch.bfloat16":
        return np.asarray(given.float()).astype(BFLOAT16)
    return given


def _convert(array: Array, to: DType, what: str) -> Array:
    if array.dtype == to:
        return array
    if to == BFLOAT16 and array.dtype == "V2":
        return array.view(BFLOAT16)  # NumPy's files know it as two bytes of no type
    if array.dtype.name not in type_names:
        raise InputError(f"{what} has dtype {to}, got {array.dtype}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
        return _convert(array, to, what)
    if kind(array.dtype) > kind(to):
        raise InputError(f"{what} has dtype {to}; {array.dtype} would lose information")
    with np.errstate(all="ignore"):
        converted = array.astype(to)
    if kind(to) is Kind.INT and not np.array_equal(converted, array):
        raise InputError(f"{what} has dtype {to}, which does not hold all the values given")
    return converted
