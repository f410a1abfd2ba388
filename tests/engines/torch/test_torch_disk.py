"""Inputs in files: they stay on disk, are read as they are needed, and nothing else is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from agreement import agree, arrays_for
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import eindecomp as ed
from eindecomp.engines.result import TaskStarted

torch = pytest.importorskip("torch", reason="torch is not installed")

from safetensors import safe_open  # noqa: E402 - it needs torch for its tensors

from eindecomp.engines.torch.disk_tier import (  # noqa: E402
    file_tile,
    mapped_from,
    note_file,
)

SIDE = 512
WEIGHTS = [f"W{k}" for k in range(5)]
NOTHING = 64 << 20
LIMIT = NOTHING + 3 * 4 * SIDE * SIDE
"""There is room for two weights and what is computed."""


def chain():
    """A product of five matrices, of which each takes a megabyte."""
    text = f"input X[i: 8, a: {SIDE}]\n"
    text += f"input {', '.join(f'{name}[a: {SIDE}, b: {SIDE}]' for name in WEIGHTS)}\n"
    last = "X[i,a]"
    for k, name in enumerate(WEIGHTS):
        text += f"H{k}[i,b] <- sum {last} * {name}[a,b]\n"
        last = f"H{k}[i,a]"
    return ed.parse(f"{text}output H4")


def by_path(folder: Path, arrays):
    for name in WEIGHTS:
        np.save(folder / f"{name}.npy", arrays[name])
    return {name: folder / f"{name}.npy" for name in WEIGHTS}


def by_safetensors(folder: Path, arrays):
    save_file({name: arrays[name] for name in WEIGHTS}, folder / "w.safetensors")
    return {name: f"{folder / 'w.safetensors'}#{name}" for name in WEIGHTS}


def by_torch(folder: Path, arrays):
    save_file({name: arrays[name] for name in WEIGHTS}, folder / "w.safetensors")
    with safe_open(folder / "w.safetensors", "pt") as opened:
        return {name: opened.get_tensor(name) for name in WEIGHTS}


def by_columns(folder: Path, arrays):
    """In Fortran's order, in which the elements of a row lie far apart."""
    turned = {name: np.asfortranarray(arrays[name]) for name in WEIGHTS}
    return {name: np.load(by_path(folder, turned)[name], mmap_mode="r") for name in WEIGHTS}


FORMS = [by_path, by_safetensors, by_torch, by_columns]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("kept", [0, "2.5MiB", None])
def test_weights_in_files(form, devices, kept, tmp_path):
    graph = chain()
    arrays = arrays_for(graph)
    files = form(tmp_path, arrays)
    plan = ed.plan(graph, devices, rewrite=False)
    options = {"device": "cpu", "gpu_memory": LIMIT, "host_memory": kept}
    wanted = ed.evaluate(graph, arrays)
    with ed.compile(plan, "torch", **options) as executable:
        placed = executable.place(files)
        for weights in (placed, placed, files):
            agree(executable({**arrays, **weights}), wanted, 1e-4)
        np.testing.assert_array_equal(placed["W3"].numpy(), arrays["W3"])


@pytest.mark.parametrize(("kept", "read"), [(0, True), ("100MB", False)])
def test_what_the_host_does_not_keep_is_read_in_every_run(kept, read, tmp_path):
    graph = chain()
    arrays = arrays_for(graph)
    files = by_path(tmp_path, arrays)
    options = {"device": "cpu", "gpu_memory": LIMIT, "host_memory": kept}
    with ed.compile(ed.plan(graph, 1, rewrite=False), "torch", **options) as executable:
        placed = executable.place(files)
        before = executable({**arrays, **placed})["H4"].copy()
        for name in WEIGHTS:
            np.load(files[name], mmap_mode="r+")[:] *= 2
        after = executable({**arrays, **placed})["H4"]
    assert np.array_equal(before, after) != read


@pytest.mark.parametrize("kept", [0, "100MB"])
def test_tensors_of_files_are_taken_by_other_executables(kept, tmp_path):
    graph = chain()
    arrays = arrays_for(graph)
    paged = {"device": "cpu", "gpu_memory": LIMIT, "host_memory": kept}
    first = ed.compile(ed.plan(graph, 1, rewrite=False), "torch", **paged)
    placed = first.place(by_path(tmp_path, arrays))
    for devices, options in ((4, paged), (1, paged), (2, {"device": "cpu"})):
        plan = ed.plan(graph, devices, rewrite=False)
        with ed.compile(plan, "torch", **options) as executable:
            agree(executable({**arrays, **placed}), ed.evaluate(graph, arrays), 1e-4)
            placed = executable.place(placed)


def test_a_file_that_becomes_shorter_is_named_and_the_next_run_is_right(tmp_path):
    graph = chain()
    arrays = arrays_for(graph)
    files = by_path(tmp_path, arrays)
    content = files["W3"].read_bytes()
    options = {"device": "cpu", "gpu_memory": LIMIT, "host_memory": 0}
    with ed.compile(ed.plan(graph, 1, rewrite=False), "torch", **options) as executable:
        placed = executable.place(files)
        executable({**arrays, **placed})
        with files["W3"].open("r+b") as opened:
            opened.truncate(1000)
        with pytest.raises(ed.RunError, match=r"W3\.npy has become shorter: it ends at byte 1000"):
            executable({**arrays, **placed})
        with files["W3"].open("r+b") as opened:
            opened.write(content)
        agree(executable({**arrays, **placed}), ed.evaluate(graph, arrays), 1e-4)


def test_a_listener_ends_a_run_that_reads(tmp_path):
    graph = chain()
    arrays = arrays_for(graph)
    options = {"device": "cpu", "gpu_memory": LIMIT, "host_memory": 0}

    def listen(event):
        if isinstance(event, TaskStarted) and event.vertex == "H2":
            raise KeyError("enough")

    with ed.compile(ed.plan(graph, 1, rewrite=False), "torch", **options) as executable:
        placed = executable.place(by_path(tmp_path, arrays))
        with pytest.raises(KeyError, match="enough"):
            executable({**arrays, **placed}, on_event=listen)
        agree(executable({**arrays, **placed}), ed.evaluate(graph, arrays), 1e-4)


def test_large_tensors_are_read_block_by_block(tmp_path):
    """Of 48 MiB each, more than a block of the ring."""
    graph = ed.parse(
        "input X[i: 2, a: 3072], V[a, b: 4096], W[b, a]\n"
        "H[i,b] <- sum X[i,a] * V[a,b]\nZ[i,a] <- sum H[i,b] * W[b,a]\noutput Z"
    )
    arrays = arrays_for(graph)
    files = {name: tmp_path / f"{name}.npy" for name in ("V", "W")}
    for name, path in files.items():
        np.save(path, arrays[name])
    options = {"device": "cpu", "gpu_memory": NOTHING + (52 << 20), "host_memory": 0}
    plan = ed.plan(graph, 1, rewrite=False)
    found = ed.run(plan, {**arrays, **files}, "torch", **options)
    agree(found, ed.evaluate(graph, arrays), 1e-4)


SHAPE = (6, 1, 40, 600)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiles") / "x.npy"
    np.save(path, np.random.default_rng(0).standard_normal(SHAPE, np.float32))
    return path


@given(
    order=st.permutations(range(4)),
    lows=st.tuples(*(st.integers(0, size - 1) for size in SHAPE)),
    sides=st.tuples(*(st.integers(1, size) for size in SHAPE)),
    part=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_any_part_of_any_tile_is_read(stored, order, lows, sides, part):
    whole = torch.from_numpy(np.asarray(np.load(stored, mmap_mode="c")))
    where = tuple(slice(low, low + side) for low, side in zip(lows, sides, strict=True))
    tile = note_file(whole[where].permute(tuple(order)), mapped_from(whole))
    found = file_tile(tile)
    assert found is not None
    start, stop = (int(share * tile.numel()) * 4 for share in sorted(part))
    target = torch.zeros(stop - start, dtype=torch.uint8)
    found.read(start, target)
    content = tile.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)
    assert torch.equal(target, content[start:stop])


def test_only_what_is_as_in_its_file_is_found(stored):
    assert mapped_from(torch.zeros(1 << 20)) is None
    copied = np.load(stored, mmap_mode="c")
    assert mapped_from(torch.from_numpy(np.asarray(copied))) is not None
    copied[0, 0, 0, 0] = 7
    assert mapped_from(torch.from_numpy(np.asarray(copied))) is None


@pytest.mark.parametrize("happens", ["removed", "replaced"])
def test_a_file_that_is_no_longer_there_is_not_read(happens, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((SIDE, SIDE), np.float32))
    tensor = torch.from_numpy(np.asarray(np.load(path, mmap_mode="c")))
    path.rename(tmp_path / "old.npy")
    if happens == "replaced":
        np.save(path, np.zeros((SIDE, SIDE), np.float32))
    found = mapped_from(tensor)
    assert found is None or found.file.path == str(tmp_path / "old.npy")
    (tmp_path / "old.npy").unlink()
    assert mapped_from(tensor) is None


@pytest.mark.parametrize("kept", [{}, {"host_memory": 0}])
def test_a_file_that_was_written_anew_is_read_anew(kept, tmp_path):
    graph = ed.parse("input X[i: 4, j: 512], W[j, k: 512]\nY[i,k] <- sum X[i,j] * W[j,k]\noutput Y")
    x, path = np.ones((4, 512), np.float32), tmp_path / "W.npy"
    options = {"device": "cpu", "gpu_memory": "80MiB", **kept}
    with ed.compile(ed.plan(graph, 1), "torch", **options) as executable:
        for value in (1, 2):
            np.save(path, np.full((512, 512), value, np.float32))
            placed = executable.place({"W": path})
            assert (executable({"X": x, **placed})["Y"] == 512 * value).all()
            del placed


@pytest.mark.parametrize("kept", [{}, {"host_memory": 0}])
def test_bytes_of_a_file_are_read_as_each_type(kept, tmp_path):
    graph = ed.parse(
        "input I[i: 512, j: 512] int32, F[i, j] float32\n"
        "A[i,j] <- I[i,j] + 1\nB[i,j] <- F[i,j] * 2\noutput A, B"
    )
    path = tmp_path / "both.bin"
    (np.arange(512 * 512, dtype=np.int32) + 10**9).tofile(path)
    shape = (512, 512)
    given = {
        name: np.memmap(path, dtype, "r", shape=shape)
        for name, dtype in (("I", np.int32), ("F", np.float32))
    }
    options = {"device": "cpu", "gpu_memory": "80MiB", **kept}
    with ed.compile(ed.plan(graph, 1), "torch", **options) as executable:
        agree(executable(executable.place(given)), ed.evaluate(graph, given), 0)
