"""Inputs that lie elsewhere than in memory: read by tiles, converted by tiles, given back whole."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.graph.arrays import to_stored

ROWS = "input X[i: 4, j: 6]\nZ[i] <- sum X[i,j]\noutput X, Z"


class Slices:
    """An array of which nothing is known but its shape, its type and its slices."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.seen = []

    def __getitem__(self, where):
        self.seen.append(where)
        return self.array[where]


def run(text, array, devices=2):
    return ed.run(ed.plan(ed.parse(text), devices, strategy=["i"]), {"X": array})


@pytest.mark.parametrize("of", ["float32", "float64", ">f4", "int64"])
def test_slices_are_enough(of):
    x = np.arange(24).reshape(4, 6).astype(of)
    stored = Slices(x)
    found = run(ROWS, stored)
    assert stored.seen == [(slice(0, 2), slice(0, 6)), (slice(2, 4), slice(0, 6)), ...]
    assert found["X"].dtype == found["Z"].dtype == np.float32
    assert np.array_equal(found["X"], x)
    assert np.array_equal(found["Z"], x.sum(axis=1))
    assert np.array_equal(ed.evaluate(ed.parse(ROWS), {"X": Slices(x)})["Z"], found["Z"])


def test_a_mapped_file_of_another_type_is_converted_by_tiles(tmp_path):
    x = np.arange(24, dtype=np.int32).reshape(4, 6)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    stored = to_stored(mapped, ed.parse(ROWS)["X"])
    assert not isinstance(stored, np.ndarray)
    assert stored[1:2].dtype == np.float32
    assert np.array_equal(run(ROWS, mapped)["Z"], x.sum(axis=1))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((4, 5), np.float32), r"has shape \(4, 6\), got \(4, 5\)"),
        (np.ones((4, 6), complex), "complex128 would lose information"),
        (np.full((4, 6), "a"), "has dtype float32, got <U1"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_read(array, message):
    stored = Slices(array)
    with pytest.raises(ed.InputError, match=message):
        run(ROWS, stored)
    assert not stored.seen


def test_numbers_that_do_not_fit_are_refused_where_they_are_read():
    text = "input X[i: 4] int8\nZ[i] <- X[i] + 1\noutput Z"
    with pytest.raises(ed.RunError, match=r"tile \[2:4\].*int8, which does not hold all"):
        run(text, Slices(np.array([1, 2, 3, 300])))


def test_a_trace_that_cannot_be_written_is_told_before_the_run(tmp_path):
    stored = Slices(np.ones((4, 6), np.float32))
    with pytest.raises(FileNotFoundError, match=r"run\.json"):
        ed.run(ed.plan(ed.parse(ROWS), 2), {"X": stored}, trace=tmp_path / "none" / "run.json")
    assert not stored.seen


def test_what_ended_a_run_is_told_before_what_kept_its_trace(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()

    def remove(_):
        if folder.exists():
            folder.rmdir()
        raise KeyboardInterrupt

    plan = ed.plan(ed.parse(ROWS), 2)
    with pytest.raises(KeyboardInterrupt):
        ed.run(plan, {"X": np.ones((4, 6))}, trace=folder / "run.json", on_event=remove)


class Closing(Slices):
    """As a dataset of h5py, which raises for whatever is asked once its file is closed."""

    def __init__(self, array, reads):
        super().__init__(array)
        self.left = reads

    @property
    def chunks(self):
        if not self.left:
            raise ValueError("Invalid dataset identifier (invalid dataset identifier)")

    def __getitem__(self, where):
        if not self.left:
            raise ValueError("Not a dataset (not a dataset)")
        self.left -= 1
        return super().__getitem__(where)


def test_an_input_whose_file_was_closed_is_named():
    x = np.ones((4, 6), np.float32)
    with pytest.raises(ed.InputError, match=r"input X\[i,j\] cannot be read: ValueError: Invalid"):
        run(ROWS, Closing(x, 0))
    with pytest.raises(
        ed.RunError, match=r"Z\[i\], tile \[2:4\].*Not a dataset.*when input 'X' was read"
    ):
        run(ROWS, Closing(x, 1))


def test_an_output_whose_file_was_closed_meanwhile_is_named():
    with pytest.raises(ed.InputError, match=r"Not a dataset.*when input 'X' was read"):
        run(ROWS, Closing(np.ones((4, 6), np.float32), 2))
