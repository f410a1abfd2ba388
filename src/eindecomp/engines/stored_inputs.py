"""Inputs by the paths of their files: `.npy`, `.zarr` and `.safetensors`, read tile by tile.

Files may be damaged or somebody else's: they are checked, and nothing in them is ever unpickled.
"""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from os import fspath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, open_memmap

from eindecomp.engines.safetensors_file import open_tensor
from eindecomp.errors import InputError, extra, quote

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    Array = np.ndarray[Any, Any]

KINDS = (".npy", ".zarr", ".safetensors")


def open_stored(place: str | Path, name: str) -> Any:
    """The array in a file, of which nothing is read until it is sliced.

    A `.safetensors` file and a group of `.zarr` hold several: `weights.safetensors#W1` says which
    is meant, otherwise it is the one with the input's own name.
    """
    text, mark, fragment = fspath(place).partition("#")
    if Path(fspath(place)).exists():  # a name may have such a sign in it
        text, mark, fragment = fspath(place), "", ""
    path, within = Path(text), fragment if mark else name
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InputError(f"input {name!r}: {quote(text, 200)} is no file of {', '.join(KINDS)}")
    try:
        if kind == ".safetensors":
            check_regular(path)
            return open_tensor(path, within)
        if kind == ".zarr":
            return _zarr_array(path, within, is_named=bool(mark))
        if mark:
            raise _holds_one(path, fragment)
        return npy_array(path)
    except InputError as error:
        raise InputError(f"input {name!r}: {error}") from None
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"input {name!r}: {path} cannot be read: {why}") from None


def npy_array(path: Path) -> Array:
    """The array of a `.npy` file, memory-mapped."""
    check_regular(path)
    if zipfile.is_zipfile(path):
        raise InputError(f"{path} holds arrays by name: give it alone, as --data {path}")
    with reading(path, ".npy"):
        with path.open("rb") as opened:
            check_start(path, opened, MAGIC_PREFIX, ".npy")
        return open_memmap(path, mode="r")


_CODECS = {
    "adler32", "astype", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta",
    "fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits",
    "pcodec", "quantize", "sharding_indexed", "shuffle", "transpose", "zfpy", "zlib", "zstd",
}  # fmt: skip
"""The codecs of numbers that read bytes and nothing else."""


def check_regular(path: Path) -> None:
    """Refuse devices and pipes, which have no end, and folders; what is missing is for others."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no regular file, and only those are read as inputs")


def check_start(path: Path, opened: IO[bytes], start: bytes, what: str) -> None:
    """Refuse a file of another kind, for which NumPy's advice would be to load it unsafely."""
    if opened.read(len(start)) != start:
        raise InputError(f"{path} is no {what} file: it does not begin as one")
    opened.seek(0)


@contextmanager
def reading(path: Path, what: str) -> Generator[None]:
    """Says which file is damaged."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a damaged file raises anything, from zlib's errors to MemoryError
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise InputError(f"{path} is no {what} file of numbers: {error}") from None


def _zarr_array(path: Path, name: str, *, is_named: bool) -> Any:
    """An array of zarr, of which chunks are read as they are asked for."""
    zarr = extra("zarr")
    if not path.exists():
        raise InputError(f"there is no {path}")
    if not path.is_dir():
        check_regular(path)
    with reading(path, ".zarr"):
        found = zarr.open(path, mode="r")
        if isinstance(found, zarr.Group):
            group, found = found, found.get(name)
            if not isinstance(found, zarr.Array):
                some = ", ".join(sorted(group.array_keys()))
                raise InputError(f"{path} has no array {quote(name)}: it has {some or 'none'}")
        elif is_named:
            raise _holds_one(path, name)
        _check_codecs(path, found.metadata)
        return found


def _holds_one(path: Path, asked: str) -> InputError:
    return InputError(f"{path} holds one array: there is no {quote(asked)} in it")


def _check_codecs(path: Path, metadata: Any) -> None:
    """Refuse chunks in a code that is not known to be safe: some run what is written in a chunk."""
    made = metadata.to_dict()
    used = _codecs([made.get(key) for key in ("codecs", "compressor", "filters")])
    unknown = sorted({name.removeprefix("numcodecs.") for name in used} - _CODECS)
    if unknown:
        raise InputError(f"{path} holds chunks coded by {', '.join(unknown)}, which are not read")


def _codecs(found: Any) -> Iterator[str]:
    """The names of codecs, those inside others too."""
    match found:
        case dict():
            own = cast("dict[str, Any]", found)
            if isinstance(name := own.get("name", own.get("id")), str):
                yield name
            for key in ("configuration", "codecs", "index_codecs"):
                yield from _codecs(own.get(key))
        case list() | tuple():
            for each in cast("Sequence[Any]", found):
                yield from _codecs(each)
        case _ if hasattr(found, "get_config"):
            yield from _codecs(found.get_config())
        case _ if hasattr(found, "to_dict"):
            yield from _codecs(found.to_dict())
        case _:
            return
