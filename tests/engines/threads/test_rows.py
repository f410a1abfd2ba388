"""Gathers from tables that are not in memory read the rows they name, and count no others."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lazy import Lazy

import eindecomp as ed
from eindecomp.engines.threads import memory
from eindecomp.engines.threads.engine import ThreadsEngine

WIDTH = 256
HUGE = 100 * 10**9 // (4 * WIDTH)


def lookup(size, width=WIDTH, of="float32"):
    return ed.parse(
        f"input T[v: {size}, d: {width}] {of}, I[s: 3] int64\nE[s,d] <- T[I[s], d]\noutput E"
    )


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A table of 100 GB, of which the file system stores next to nothing."""
    path = tmp_path_factory.mktemp("table") / "table"
    path.touch()
    os.truncate(path, HUGE * WIDTH * 4)
    table = np.memmap(path, np.float32, "r+", shape=(HUGE, WIDTH))
    table[5], table[HUGE - 1] = 3, 7
    return table


@pytest.mark.parametrize("devices", [1, 2, 4])
@pytest.mark.parametrize("of", ["float32", "float64"])
@pytest.mark.parametrize("stored", [False, True])
def test_rows_of_a_table_larger_than_memory(huge, devices, of, stored):
    seen = []
    table = Lazy(huge, seen.append) if stored else huge
    plan = ed.plan(lookup(HUGE, of=of), devices)
    found = ed.run(plan, {"T": table, "I": np.array([5, HUGE - 1, 0])})
    assert (found["E"] == np.array([[3], [7], [0]])).all()
    assert found.stats.peak_memory < 100_000
    assert sum(where[0].stop - where[0].start for where in seen) < 100


@pytest.mark.parametrize("index", ["d in 0:10", "7", "d in 3:4"])
def test_rows_that_are_cut_are_gathered_first(huge, index):
    left = "s,d" if "d" in index else "s"
    graph = ed.parse(
        f"input T[v: {HUGE}, d: {WIDTH}], I[s: 3] int64\nE[{left}] <- T[I[s], {index}]\noutput E"
    )
    seen = []
    given = {"T": Lazy(huge, seen.append), "I": np.array([5, HUGE - 1, 0])}
    found = ed.run(ed.plan(graph, 2), given)["E"]
    assert (found.reshape(3, -1) == np.array([[3], [7], [0]])).all()
    assert sum(where[0].stop - where[0].start for where in seen) < 100


def test_an_index_outside_the_table_is_named(huge):
    plan = ed.plan(lookup(HUGE), 1)
    for table in (huge, Lazy(huge, lambda _: None)):
        with pytest.raises(ed.RunError, match=rf"index {HUGE} is outside 0 to {HUGE - 1}"):
            ed.run(plan, {"T": table, "I": np.array([0, HUGE, 1])})


def test_a_table_that_is_read_all_over_counts_as_a_whole():
    table = np.ones((4, WIDTH), np.float32)
    graph = ed.parse(f"input T[v: 4, d: {WIDTH}], I[s: 9] int64\nE[s,d] <- T[I[s], d]\noutput E")
    index = np.arange(9) % 4
    given = {"T": Lazy(table, lambda _: None), "I": index}
    peak = ed.run(ed.plan(graph, 1), given, ThreadsEngine(1)).stats.peak_memory
    assert peak == table.nbytes + index.nbytes + 9 * WIDTH * 4


def test_labels_that_table_and_index_share(monkeypatch):
    monkeypatch.setattr(memory, "_SLAB", 1)
    text = "input T[b: 4, v: 50, d: 3], I[b, s: 6] int64\nE[b,s,d] <- T[b, I[b,s], d]\noutput E"
    graph = ed.parse(text)
    rng = np.random.default_rng(0)
    given = {"T": rng.random((4, 50, 3), np.float32), "I": rng.integers(0, 50, (4, 6))}
    wanted = ed.evaluate(graph, given)["E"]
    for devices in (1, 2, 4):
        stored = {"T": Lazy(given["T"], lambda _: None), "I": Lazy(given["I"], lambda _: None)}
        assert (ed.run(ed.plan(graph, devices), stored)["E"] == wanted).all()


class Chunked:
    """Notes what is read of an array that is stored in chunks."""

    def __init__(self, array, chunks):
        self.array, self.dtype, self.chunks, self.read = array, array.dtype, chunks, 0

    def __getitem__(self, where):
        assert all(isinstance(part, slice) for part in where)
        self.read += 1
        return self.array[where]


@given(
    index=st.lists(st.integers(0, 19), max_size=12),
    axis=st.integers(0, 1),
    chunk=st.sampled_from([None, 1, 3, 8, 100]),
    slab=st.integers(1, 400),
    cut=st.integers(0, 2),
)
def test_rows_are_those_that_numpy_takes(index, axis, chunk, slab, cut):
    array = np.arange(60).reshape((20, 3) if axis == 0 else (3, 20))
    where = [slice(cut, 3), slice(cut, 3)]
    where[axis] = slice(0, 20)
    stored = Chunked(array, None if chunk is None else (chunk, chunk))
    index = np.array(index, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_SLAB", slab)
        table, own = memory.read_rows(stored, tuple(where), axis, index)
    wanted = np.take(array[tuple(where)], index, axis)
    assert np.array_equal(np.take(table, own, axis), wanted)
    assert table.shape[axis] == len(set(index.tolist())) >= stored.read
