"""Files are written as a whole or not at all, with the mode they should have and named errors."""

from __future__ import annotations

import errno
import os
from stat import S_IMODE

import pytest

from eindecomp.engines.whole_files import check_writable, replacing, write_whole


def refuse(_file):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_by_replacing(path, content):
    with replacing(path) as fresh:
        if callable(content):
            content(fresh)
        else:
            fresh.unlink()  # as libraries do that write beside and rename
            fresh.touch(0o600)
            fresh.write_bytes(content)


WRITERS = [write_whole, write_by_replacing]


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_leaves_the_file_and_is_told_with_its_name(tmp_path, write):
    path = tmp_path / "plan.json"
    write(path, b"before")
    with pytest.raises(OSError, match=r"No space left on device: '.*plan\.json'") as caught:
        write(path, refuse)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("umask", [0o002, 0o027, 0o077])
def test_the_umask_decides_who_may_read_a_new_file_and_an_old_one_keeps_its_mode(
    tmp_path, write, umask
):
    path = tmp_path / "plan.json"
    before = os.umask(umask)
    try:
        write(path, b"x")
        assert S_IMODE(path.stat().st_mode) == 0o666 & ~umask
        path.chmod(0o604)
        write(path, b"y")
        assert S_IMODE(path.stat().st_mode) == 0o604
        assert path.read_bytes() == b"y"
    finally:
        os.umask(before)


def test_places_that_cannot_be_written_are_named(tmp_path):
    path = tmp_path / "nowhere" / "plan.json"
    for write in (check_writable, lambda p: write_whole(p, b"x")):
        with pytest.raises(FileNotFoundError, match=r"nowhere/plan\.json"):
            write(path)
