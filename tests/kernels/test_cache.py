"""The folder of compiled code: only where it can be trusted, never larger than allowed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.errors import InputError
from eindecomp.kernels import cache

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


def _kept() -> list[Path]:
    folder = cache.cache_folder()
    return [] if folder is None else [*folder.iterdir()]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as XDG_CACHE_HOME in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(cache.LIMIT, raising=False)
    (tmp_path / "cache").mkdir(mode=0o755)
    return tmp_path / "cache"


def test_what_is_stored_is_loaded(root: Path) -> None:
    assert cache.load("key") is None
    cache.store("key", b"code")
    assert cache.load("key") == b"code"
    assert cache.load("other") is None
    [file] = (root / "eindecomp" / "kernels").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.load("key") is None


@pytest.mark.parametrize("inner", ["", "eindecomp", "eindecomp/kernels"])
def test_no_folder_that_others_can_write_to_is_used(root: Path, inner: str) -> None:
    assert cache.cache_folder() is not None
    (root / inner).chmod(0o777)
    assert cache.cache_folder() is None
    (root / inner).chmod(0o1777)  # as /tmp: what is ours stays so, but what is new may be anyone's
    assert (cache.cache_folder() is None) == (inner == "eindecomp/kernels")


@as_root
@pytest.mark.parametrize("inner", ["", "eindecomp", "eindecomp/kernels"])
def test_no_folder_of_somebody_else_is_used(root: Path, inner: str) -> None:
    assert cache.cache_folder() is not None
    os.chown(root / inner, NOBODY, NOBODY)
    assert cache.cache_folder() is None


@as_root
def test_links_are_followed_if_they_are_ours(root: Path, tmp_path: Path) -> None:
    (tmp_path / "large_disk").mkdir(mode=0o755)
    link = root / "eindecomp"
    link.symlink_to(tmp_path / "large_disk")
    assert cache.cache_folder() == tmp_path / "large_disk" / "kernels"
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert cache.cache_folder() is None


@as_root
def test_nothing_is_made_behind_a_link_of_somebody_else(root: Path, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o755)
    (root / "eindecomp").symlink_to(tmp_path / "ours")
    os.chown(root / "eindecomp", NOBODY, NOBODY, follow_symlinks=False)
    assert cache.cache_folder() is None
    assert not list((tmp_path / "ours").iterdir())


@pytest.mark.parametrize("home", ["/dev/null", "/proc"])
def test_where_no_folder_can_be_made_nothing_is_kept(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    cache.store("key", b"code")
    assert cache.load("key") is None
    assert cache.cache_folder() is None


def test_what_was_not_used_for_longest_goes_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.LIMIT, "1")
    monkeypatch.setattr(cache, "_LOOK", 1)
    part = bytes(300_000)
    for k in range(3):
        cache.store(f"key {k}", part)
        path = cache._path_of(f"key {k}")
        assert path is not None
        os.utime(path, (1000 + k, 1000 + k))
    assert cache.load("key 0") == part  # which makes it the one used last
    cache.store("key 3", part)
    assert sum(path.stat().st_size for path in _kept()) <= 1 << 20
    kept = [k for k in range(4) if cache.load(f"key {k}") == part]
    assert kept == [0, 3]


def test_files_that_nobody_finished_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_LOOK", 1)
    folder = cache.cache_folder()
    assert folder is not None
    (folder / ".abandoned").touch()
    (folder / ".written now").touch()
    os.utime(folder / ".abandoned", (1000, 1000))
    cache.store("key", b"code")
    assert {path.name for path in folder.iterdir() if path.name[0] == "."} == {".written now"}


def test_nothing_is_kept_if_nothing_may_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("key", b"code")
    monkeypatch.setenv(cache.LIMIT, "0")
    cache.store("other", b"")
    assert len(_kept()) == 1
    assert cache.load("key") is None


@pytest.mark.parametrize("text", ["much", "0.5", "-1", "9" * 30])
def test_a_limit_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, text)
    with pytest.raises(InputError, match=f"EINDECOMP_CACHE_MB is how many whole MiB .* '{text}'"):
        cache.limit()
    graph = ed.parse("input X[i: 3]\nZ[i] <- X[i] + 1\noutput Z")
    with pytest.raises(InputError, match=r"^EINDECOMP_CACHE_MB"):
        ed.run(ed.plan(graph, 1), {"X": np.ones(3)})


@pytest.mark.parametrize(("text", "wanted"), [(" 5", 5), ("", 256), (" ", 256), ("0", 0)])
def test_limits_are_in_mib(text: str, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.LIMIT, text)
    assert cache.limit() == wanted << 20
