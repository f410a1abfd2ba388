"""Arrays in files: wherever they lie, workers find the same elements there."""

from __future__ import annotations

import gc
import pickle

import ml_dtypes
import numpy as np
import pytest
from lazy import Lazy

import eindecomp as ed
from eindecomp.engines.ray.tensors import Folder, MappedArray, where_it_lies

VIEWS = {
    "all": np.s_[...],
    "rows": np.s_[2:5],
    "every second column, backwards": np.s_[:, ::-2],
    "one number": np.s_[3, 4],
    "nothing": np.s_[:0],
}


@pytest.fixture
def mapped(tmp_path):
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    np.save(tmp_path / "x.npy", array)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


@pytest.mark.parametrize("where", VIEWS)
def test_views_of_mapped_files_are_found_in_them(mapped, where):
    view = np.asarray(mapped)[VIEWS[where]]
    for array in (view, view.T) if isinstance(view, np.ndarray) else ():
        found = pickle.loads(pickle.dumps(where_it_lies(array)))  # noqa: S301
        assert isinstance(found, MappedArray)
        np.testing.assert_array_equal(found.open(), array)


def test_what_lies_in_no_file_is_written_to_one(mapped, tmp_path):
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[0, 0] = 7  # which the file does not know
    assert where_it_lies(np.asarray(private)) is None
    assert where_it_lies(np.array(mapped)) is None
    assert where_it_lies(Lazy(np.zeros(4), lambda _: None)) is None


@pytest.mark.parametrize("dtype", [np.float64, bool, np.complex64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 3), (2, 3, 2)])
def test_written_arrays_are_read_again(shape, dtype):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    folder = Folder(None)
    for given in (array, array.T, Lazy(array, lambda _: None)):
        found, kept = folder.write(given)
        np.testing.assert_array_equal(found.open(), getattr(given, "array", given))
        del kept
    folder.remove()
    assert not folder.path.exists()


def test_files_are_there_as_long_as_somebody_has_them(monkeypatch):
    monkeypatch.setattr("eindecomp.engines.ray.tensors._SLAB", 16)  # several slabs
    folder = Folder(None)
    path = folder.path
    found, kept = folder.write(np.arange(40.0).reshape(10, 4))
    del folder
    gc.collect()
    np.testing.assert_array_equal(found.open(), np.arange(40.0).reshape(10, 4))
    del kept
    gc.collect()
    assert not path.exists()
    with pytest.raises(ed.InputError, match="must be where every node can read them"):
        found.open()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ed.InputError, match=r"directory: .*nowhere' cannot be written to"):
        Folder(str(tmp_path / "nowhere"))


MATMUL = "input X[i: 6, j: 8], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def test_inputs_are_read_where_they_lie(engine, mapped, tmp_path, monkeypatch):
    """Nothing is written for inputs that every worker can read."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    y = np.arange(32, dtype=np.float32).reshape(8, 4)
    stored = zarr.create_array(str(tmp_path / "y.zarr"), data=y, chunks=(3, 3))
    monkeypatch.setattr(Folder, "write", lambda *_: pytest.fail("an input was copied"))
    for strategy in (["i"], ["j"]):
        plan = ed.plan(ed.parse(MATMUL), 4, strategy=strategy)
        found = ed.run(plan, {"X": mapped, "Y": stored}, engine)
        np.testing.assert_array_equal(found["Z"], mapped @ y)
        assert found.stats.bytes_moved == plan.cost


def test_what_fails_as_it_is_read_is_told(engine):
    def fail(_):
        raise OSError("the disk is gone")

    x = Lazy(np.zeros((6, 8), np.float32), fail)
    with pytest.raises(ed.InputError, match="OSError: the disk is gone, when an input was read"):
        ed.run(ed.plan(ed.parse(MATMUL), 2), {"X": x, "Y": np.zeros((8, 4))}, engine)


@pytest.mark.parametrize("kind", [".npy", ".zarr"])
@pytest.mark.parametrize("devices", [1, 4])
def test_outputs_are_written_by_workers(engine, tmp_path, kind, devices, monkeypatch):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    text = "input X[i: 10, j: 3]\nY[i,j] <- X[i,j] + 1\nZ[] <- sum X[i,j]\noutput Y, Z"
    paths = {name: tmp_path / f"{name}{kind}" for name in "YZ"}
    monkeypatch.setattr(engine, "outputs", paths)
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    for again in (1, 2):  # also over what is there
        result = ed.run(ed.plan(ed.parse(text), devices), {"X": x * again}, engine)
        for name, path in paths.items():
            found = np.load(path) if kind == ".npy" else zarr.open_array(path)[...]
            np.testing.assert_array_equal(found, result[name])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in paths.values())


def test_an_output_that_cannot_be_written_is_named(engine, tmp_path, monkeypatch):
    graph = ed.parse("input X[i: 10]\nZ[i] <- X[i] + 1\noutput Z")
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(engine, "outputs", {"Z": tmp_path / "gone" / "z.npy"})
    exe = ed.compile(ed.plan(graph, 2), engine)
    (tmp_path / "gone").rmdir()
    with pytest.raises(ed.InputError, match=r"outputs: Z cannot be written to .*z\.npy: No such"):
        exe({"X": np.zeros(10)})


@pytest.mark.parametrize("kind", [".npy", ".zarr"])
def test_a_full_disk_is_told_at_once(engine, small_disk, monkeypatch, kind):
    pytest.importorskip("zarr", reason="zarr is not installed")
    graph = ed.parse("input X[i: 1000, j: 1000]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    monkeypatch.setattr(engine, "outputs", {"Z": small_disk / f"z{kind}"})
    x = np.random.default_rng(0).random((1000, 1000), "float32")  # which nothing compresses
    with pytest.raises(ed.EinDecompError, match=r"(Z cannot be written|Z:).*[Nn]o space left"):
        ed.run(ed.plan(graph, 2), {"X": x}, engine)
    assert not list(small_disk.iterdir())


def test_outputs_in_low_precision(engine, tmp_path, monkeypatch):
    graph = ed.parse("input X[i: 10] bfloat16\nY[i] <- X[i] + 1\noutput Y")
    monkeypatch.setattr(engine, "outputs", f"Y={tmp_path / 'y.npy'}")
    result = ed.run(ed.plan(graph, 4), {"X": np.arange(10)}, engine)
    found = np.load(tmp_path / "y.npy").view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found, result["Y"])
    monkeypatch.setattr(engine, "outputs", f"Y={tmp_path / 'y.zarr'}")
    with pytest.raises(ed.InputError, match="zarr has no bfloat16, which Y is"):
        ed.compile(ed.plan(graph, 4), engine)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"Q": "q.npy"}, "there is no output 'Q'"),
        ({"Z": "z.txt"}, r"Z is written to a .npy or .zarr file, not z.txt"),
        ({"Z": "/nowhere/z.npy"}, "there is no folder /nowhere for Z"),
        ("Z", "outputs are files by name, as Z=z.npy"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused(outputs, message):
    from eindecomp.engines.array_files import check_outputs

    with pytest.raises(ed.InputError, match=message):
        check_outputs(ed.parse(MATMUL), outputs)
