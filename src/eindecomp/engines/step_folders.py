"""Checkpoints on disk: a folder for each step, with a shard of every rank and a manifest.

`step-000100/rank-0003.safetensors` is the shard of rank 3; a process that is alone is rank 0.
`complete.json` tells what they hold, has a digest of each, and one of itself, so that no byte can
change unnoticed. A step is written beside its place and gets its name when all ranks have told that
theirs is on disk; so whatever has its name is complete, or was damaged later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

from eindecomp.engines import whole_files
from eindecomp.engines.engine import Ranks, agree, at_first, common_token
from eindecomp.engines.safetensors_file import FileStamp, write_tensors
from eindecomp.errors import InputError, quote, shorten
from eindecomp.lang.dtypes import Array

FORMAT = "eindecomp checkpoint"
VERSION = 1
MANIFEST = "complete.json"
_LARGEST = 1 << 30  # bytes of a manifest
_NAMED = re.compile(r"step-(\d{6,18})")
_HIDDEN = re.compile(r"\.step-(\d{6,18})\.[0-9a-f]{16}")  # unfinished, or being replaced or removed


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A step, and the manifest that was written with it."""

    place: Path
    number: int
    manifest: Mapping[str, Any]

    def shard(self, rank: int) -> Path:
        """The file of a rank."""
        return _shard(self.place, rank)


@dataclass(frozen=True, slots=True)
class StepFolders:
    """The folder that has the steps of one run; all ranks call each method together."""

    path: Path
    ranks: Ranks

    # Reading

    def places(self) -> list[Path]:
        """The folders of all complete steps, the last step first."""
        complete = agree(self.ranks, lambda: [] if self.ranks.rank else _complete(self.path))
        own = None if self.ranks.rank else json.dumps([each.name for each in complete]).encode()
        return [self.path / name for name in json.loads(self.ranks.share_bytes(own))]

    def read(self, place: Path) -> SavedStep:
        """A step of which nothing is damaged; each shard is read by one of the ranks."""
        return agree(self.ranks, lambda: self._read(place))

    def _read(self, place: Path) -> SavedStep:
        step = _read_manifest(place)
        path = place / MANIFEST
        try:
            stamps = [FileStamp(each["bytes"], each["blake2b"]) for each in step.manifest["shards"]]
        except (KeyError, TypeError):
            raise InputError(f"{path}: its shards are not listed") from None
        for rank in range(self.ranks.rank, len(stamps), self.ranks.size):
            stamps[rank].check(step.shard(rank))
        return step

    def last(self) -> SavedStep | None:
        """The last step, None if there is none; if it is damaged, the error offers one before."""
        places = self.places()
        if not places:
            return None
        try:
            return self.read(places[0])
        except InputError as error:
            offer = self._undamaged(places[1:])
            if offer is None:
                told = "there is no undamaged step before it"
            else:
                told = f"step {offer.number} is undamaged: to go on from it, remove {places[0]}, "
                told += f"or load {offer.place}"
            raise InputError(f"a checkpoint is damaged: {error}; {told}") from error

    def _undamaged(self, places: list[Path]) -> SavedStep | None:
        for place in places:
            try:
                return self.read(place)
            except InputError:
                continue
        return None

    # Writing

    def write(
        self,
        number: int,
        arrays: Mapping[str, Array],
        own: Mapping[str, Any],
        common: Mapping[str, Any],
        keep: Collection[int] = (),
    ) -> None:
        """Write a step, and remove all others but those to keep.

        `own` is what the manifest tells of this rank's shard, `common` what it tells of the step.
        What keeps a rank from writing is raised by all.
        """
        ranks, existed = self.ranks, self.path.exists()
        place = self.path / f"step-{number:06d}"
        fresh = whole_files.beside(place, common_token(ranks))
        try:
            stamp = agree(ranks, lambda: _write_shard(fresh, place, ranks.rank, arrays))
            shards = ranks.gather_bytes(json.dumps({**own, **stamp.to_json()}).encode())
            manifest = {
                "format": FORMAT, "version": VERSION, "step": number,
                "shards": [json.loads(each) for each in shards], **common,
            }  # fmt: skip
            at_first(ranks, lambda: self._finish(fresh, place, manifest, {number, *keep}))
        finally:
            if ranks.rank == 0:
                whole_files.remove(fresh)
                if not existed:
                    with suppress(OSError):
                        self.path.rmdir()  # if nothing was put in place

    def _finish(
        self, fresh: Path, place: Path, manifest: Mapping[str, Any], keep: Collection[int]
    ) -> None:
        """Rank 0, when all shards are on disk: let them be a step, and remove others."""
        text = json.dumps({**manifest, "digest": _digest(manifest)})
        with whole_files.naming_file(place / MANIFEST):
            (fresh / MANIFEST).write_text(text)
            whole_files.flush(fresh / MANIFEST)
            whole_files.flush_folder(fresh)
            whole_files.put_in_place(fresh, place)
        self.prune(keep)

    def prune(self, keep: Collection[int] = ()) -> None:
        """Remove all steps but those to keep, and what is unfinished; rank 0 does it for all."""
        for each in list(self.path.iterdir()):
            named = _NAMED.fullmatch(each.name)
            if (named and int(named[1]) not in keep) or _HIDDEN.fullmatch(each.name):
                _remove_step(each)


def step_number(place: Path) -> int | None:
    """The step that a folder has by its name, whether it is there or not."""
    named = _NAMED.fullmatch(place.name) or _HIDDEN.fullmatch(place.name)
    return int(named[1]) if named else None


def _complete(path: Path) -> list[Path]:
    """The steps of a folder, the last one first.

    Those that were being put in place or replaced when a process was killed are among them.
    """
    if not path.exists():
        return []
    steps = [
        each
        for each in path.iterdir()
        if (_NAMED.fullmatch(each.name) and each.is_dir())
        or (_HIDDEN.fullmatch(each.name) and (each / MANIFEST).is_file())
    ]
    return sorted(steps, key=lambda each: (step_number(each), each.name), reverse=True)


def _read_manifest(place: Path) -> SavedStep:
    path, number = place / MANIFEST, step_number(place)
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path}: is larger than a manifest can be")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {shorten(str(error))}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{path}: must be an object, not {quote(manifest)}")
    content = cast("dict[str, Any]", manifest)
    digest = content.pop("digest", None)
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        told = f"{quote(content.get('format'))}, version {quote(content.get('version'))}"
        raise InputError(f"{path}: is not a manifest of {FORMAT}, version {VERSION}: {told}")
    if digest != _digest(content):
        raise InputError(f"{path}: is not as it was written: its digest differs")
    if content.get("step") != number:
        raise InputError(f"{path}: is of step {quote(content.get('step'))}")
    return SavedStep(place, cast("int", number), content)


def _digest(manifest: Mapping[str, Any]) -> str:
    """The digest of a manifest without its digest, however it is laid out."""
    return blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=32).hexdigest()


def _shard(place: Path, rank: int) -> Path:
    return place / f"rank-{rank:04d}.safetensors"


def _write_shard(fresh: Path, place: Path, rank: int, arrays: Mapping[str, Array]) -> FileStamp:
    with whole_files.naming_file(_shard(place, rank)):
        fresh.mkdir(parents=True, exist_ok=True)
        stamp = write_tensors(_shard(fresh, rank), arrays)
        whole_files.flush_folder(fresh)
        return stamp


def _remove_step(place: Path) -> None:
    """Remove a step: nobody sees a part of it under its name, or takes it for a complete one."""
    hidden = place
    if _NAMED.fullmatch(place.name):
        hidden = whole_files.beside(place, token_hex(8))
        place.rename(hidden)
    try:
        whole_files.flush_folder(place.parent)
    finally:
        (hidden / MANIFEST).unlink(missing_ok=True)
        whole_files.remove(hidden)
