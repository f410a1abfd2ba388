"""The protocol of kernel libraries: its laws, in every library, and how libraries are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_library import every_library
from hypothesis import given
from hypothesis import strategies as st
from random_tiles import assert_close

import eindecomp as ed
from eindecomp.errors import InputError
from eindecomp.graph.evaluate import compute, look
from eindecomp.graph.ops import Fill, Input, ScatterAdd, Window
from eindecomp.kernels import library as libraries
from eindecomp.kernels.library import KernelLibrary, TileKernel, library_of
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import used_args
from strategies import arrays, exprs, graphs

Array = np.ndarray[Any, Any]
Box = tuple[tuple[int, int], ...]


def boxes(shape: tuple[int, ...]) -> st.SearchStrategy[Box]:
    ends = [st.tuples(st.integers(0, n), st.integers(0, n)) for n in shape]
    return st.tuples(*ends).map(lambda box: tuple((min(ends), max(ends)) for ends in box))


@every_library
@given(
    value=exprs(2, ("add", "mul", "max", "where", "gt", "sin", "floordiv"), ("lr",)), data=st.data()
)
def test_a_box_of_a_fill_is_a_slice_of_the_whole(
    library: KernelLibrary, value: Any, data: st.DataObject
) -> None:
    graph = ed.Graph()
    graph.scalar("lr")
    vertex = graph.fill({"s": 5, "t": 4}, value)
    assert isinstance(vertex.op, Fill)
    box = data.draw(boxes(vertex.shape))
    scalars = {"lr": 0.75}
    found = library.empty([high - low for low, high in box], vertex.dtype)
    library.fill(vertex.op, found, box, scalars, graph.scalars)
    with np.errstate(all="ignore"):
        whole = compute(vertex, [], scalars, graph.scalars)
    wanted = whole[tuple(slice(*ends) for ends in box)]
    np.testing.assert_allclose(library.to_numpy(found), wanted, rtol=1e-6)


@every_library
def test_a_fill_of_no_dimensions_is_a_number(library: KernelLibrary) -> None:
    graph = ed.Graph()
    vertex = graph.fill({}, "1.5")
    assert isinstance(vertex.op, Fill)
    found = library.empty((), vertex.dtype)
    library.fill(vertex.op, found, (), {}, {})
    assert found == 1.5


def shares(vertex: ed.Vertex, operands: list[Any], at: int) -> list[list[Any]]:
    """The operands cut in two along a label that is aggregated, if there is one."""
    op = vertex.op
    if isinstance(op, ScatterAdd):
        labels: list[tuple[str, ...]] = [op.source, op.index]
        summed = [label for label in op.index if label not in op.table]
    elif isinstance(op, EinSum):
        labels = list(op.inputs)
        read = [own for own, x in zip(labels, operands, strict=True) if x is not None]
        summed = [label for label in op.aggregated if any(label in own for own in read)]
    else:
        return [operands]
    if not summed:
        return [operands]
    cut = (slice(None, at), slice(at, None))
    return [
        [
            None if x is None else x[*(part if t == summed[0] else slice(None) for t in own), ...]
            for own, x in zip(labels, operands, strict=True)
        ]
        for part in cut
    ]


def in_parts(
    library: KernelLibrary,
    kernel: TileKernel,
    parts: list[list[Any]],
    vertex: ed.Vertex,
    given_: list[Any],
) -> Array:
    states: list[list[Any]] = []
    for operands in parts:
        states.append([library.empty(vertex.shape, of) for of in kernel.state])
        kernel.partial(operands, states[-1], given_)
    for other in states[1:]:
        kernel.combine(states[0], other)
    found = library.empty(vertex.shape, vertex.dtype)
    kernel.finish(states[0], found)
    return library.to_numpy(found)


@every_library
@given(graph=graphs(), at=st.integers(0, 3))
def test_parts_make_the_whole_for_vertices_of_every_kind(
    library: KernelLibrary, graph: ed.Graph, at: int
) -> None:
    inputs = arrays(graph)
    scalars = {name: inputs[name] for name in graph.scalars}
    values: dict[str, Any] = {}
    for vertex in graph.vertices.values():
        name, op = vertex.name, vertex.op
        if isinstance(op, Input):
            values[name] = inputs[name]
            continue
        operands = [values[source] for source in vertex.inputs]
        with np.errstate(all="ignore"):
            values[name] = compute(vertex, operands, scalars, graph.scalars)
            if isinstance(op, Fill):
                continue
            kernel = library.kernel(graph, vertex)
            assert kernel is library.kernel(graph, vertex)
            tiles = [
                None if tile is None else library.from_numpy(tile)
                for tile in read_tiles(vertex, operands)
            ]
            whole = library.empty(vertex.shape, vertex.dtype)
            kernel.whole(tiles, whole, list(scalars.values()))
            assert_close(library.to_numpy(whole), values[name], vertex.dtype)
            parts = shares(vertex, tiles, at)
            found = in_parts(library, kernel, parts, vertex, list(scalars.values()))
            assert_close(found, library.to_numpy(whole), vertex.dtype)


def read_tiles(vertex: ed.Vertex, operands: list[Array]) -> list[Any]:
    """What an engine gives a kernel: what windows show, nothing of what is not read."""
    op = vertex.op
    windows = (op,) if isinstance(op, Window) else vertex.windows or (None,) * len(operands)
    seen = [look(x, own) for x, own in zip(operands, windows, strict=True)]
    if isinstance(op, EinSum):
        return [x if k in used_args(op.join) else None for k, x in enumerate(seen)]
    return seen


@every_library
def test_an_input_that_is_not_read_lends_the_size_of_a_label_that_is_summed(
    library: KernelLibrary,
) -> None:
    graph = ed.Graph()
    x, y = graph.input("X", {"i": 2}), graph.input("Y", {"j": 7})
    vertex = graph.einsum("i, j -> i", x, y, join="x")
    found = library.empty((2,), vertex.dtype)
    one_two = library.from_numpy(np.array([1, 2], np.float32))
    library.kernel(graph, vertex).whole([one_two, None], found)
    assert found.tolist() == [7, 14]


@every_library
@pytest.mark.parametrize("name", ["X", "F"])
def test_what_is_not_computed_has_no_kernel(library: KernelLibrary, name: str) -> None:
    graph = ed.parse("input X[i: 2]\nF[i: 2] <- fill i\noutput X, F")
    with pytest.raises(InputError, match=f"{name}.*has no kernel"):
        library.kernel(graph, graph[name])


class Ours(np.ndarray):  # a subclass of NumPy's is NumPy's
    pass


@pytest.mark.parametrize("arrays", [np.ndarray, np.memmap, Ours, "numpy"])
def test_a_library_is_found_by_type_and_by_name(arrays: type | str) -> None:
    library = library_of(arrays)
    assert library is library_of("numpy")
    assert library.name == "numpy"
    given_ = np.arange(3.0)
    np.testing.assert_array_equal(library.to_numpy(library.from_numpy(given_)), given_)


def test_no_library_is_loaded_before_it_is_wanted() -> None:
    text = "import sys, eindecomp.kernels.library; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "False"


def test_unknown_libraries_are_refused() -> None:
    with pytest.raises(InputError, match=r"no kernel library 'nunpy'; installed: numpy"):
        library_of("nunpy")
    with pytest.raises(InputError, match=r"computes arrays of type builtins\.list; installed: num"):
        library_of(list)


def test_a_package_adds_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_arrays.py").write_text(
        "class ToyArray: pass\nclass ToyLibrary:\n    name = 'toy_arrays'\n"
    )
    info = tmp_path / "toy_arrays-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_arrays\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[eindecomp.kernels]\ntoy_arrays = toy_arrays:ToyLibrary\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    libraries._installed.cache_clear()
    try:
        found: KernelLibrary = library_of("toy_arrays")
        assert found.name == "toy_arrays"
        assert library_of(sys.modules["toy_arrays"].ToyArray) is found
    finally:
        libraries._installed.cache_clear()
        libraries._named.cache_clear()
