"""Blocks of arrays as flat spans."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.engines.spmd.exchange import blocks_of
from eindecomp.engines.spmd.host_arrays import HostArrays

ARRAY = np.arange(4 * 6, dtype=np.float32).reshape(4, 6)
HELD = ((10, 14), (0, 6))


def test_rows_lie_in_one_piece_and_columns_do_not():
    rows = blocks_of({1: ((10, 12), (0, 6)), 2: ((10, 10), (0, 6)), 3: ((12, 14), (0, 6))}, HELD)
    assert rows.spans(ARRAY, HostArrays) == {1: (0, 12), 3: (12, 12)}
    columns = blocks_of({1: ((10, 14), (0, 3)), 2: ((10, 14), (3, 6))}, HELD)
    assert columns.spans(ARRAY, HostArrays) is None
    assert columns.apart == {1: (0, 12), 2: (12, 12)}
    assert rows.spans(ARRAY[:, ::-1], HostArrays) is None


def test_what_several_peers_get_is_copied_once():
    box = ((10, 14), (0, 3))
    blocks = blocks_of({1: box, 2: box}, HELD)
    assert (blocks.apart, blocks.size) == ({1: (0, 12), 2: (0, 12)}, 12)


def test_blocks_are_copied_and_put_back():
    columns = blocks_of({1: ((10, 14), (3, 6)), 2: ((10, 14), (0, 3))}, HELD)
    flat, back = np.empty(24, np.float32), np.zeros_like(ARRAY)
    columns.copy(ARRAY, flat, np.copyto, into_flat=True)
    np.testing.assert_array_equal(flat[:12].reshape(4, 3), ARRAY[:, 3:])
    columns.copy(back, flat, np.copyto, into_flat=False)
    np.testing.assert_array_equal(back, ARRAY)


@given(st.data(), st.lists(st.integers(1, 4), min_size=0, max_size=4))
def test_blocks_lie_in_one_piece_where_their_arrays_say_so(data, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    box = []
    for size in shape:
        low = data.draw(st.integers(0, size - 1))
        box.append((low, data.draw(st.integers(low + 1, size))))
    blocks = blocks_of({1: tuple(box)}, tuple((0, size) for size in shape))
    [(where, _)] = blocks.where.values()
    block = array[where]
    assert (blocks.spans(array, HostArrays) is not None) == block.flags.c_contiguous
    for start, count in (blocks.spans(array, HostArrays) or {}).values():
        np.testing.assert_array_equal(array.reshape(-1)[start : start + count], block.reshape(-1))
