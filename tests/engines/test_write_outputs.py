"""Files that devices write their blocks to: there is room for them before anybody writes."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from eindecomp.engines.array_files import create_file, write_block

FLOAT64 = np.dtype("float64")


def test_a_file_that_is_mapped_has_all_of_its_room(tmp_path):
    path = tmp_path / "z.npy"
    create_file(path, ".npy", (1000, 1000), FLOAT64, [])
    assert path.stat().st_blocks * 512 >= 8_000_000
    write_block(path, ".npy", ((10, 20), (0, 1000)), np.ones((10, 1000)))
    assert np.load(path).sum() == 10_000


def test_a_disk_without_room_is_named_and_keeps_nothing(small_disk):
    path = small_disk / "z.npy"
    with pytest.raises(OSError, match=r"7.6 MiB, .* are free") as caught:
        create_file(path, ".npy", (1000, 1000), FLOAT64, [])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert not list(small_disk.iterdir())
    create_file(path, ".npy", (100, 1000), FLOAT64, [])
