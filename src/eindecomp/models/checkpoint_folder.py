"""Checkpoints of training that ranks write together: a folder with one folder for each step.

`step-000100/rank-0003.safetensors` has the blocks that rank 3 is the first to have, and
`complete.json` says where every block of the state lies. A step is written beside its place and
gets its name when all ranks have told that theirs is on disk; so whatever has its name is complete,
or was damaged later, and then the step before is read. Any other number of ranks can read it: each
reads what it needs of the blocks it meets.
"""

from __future__ import annotations

import json
import re
import warnings
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from eindecomp.engines.ranks import agree, at_first, common_token
from eindecomp.engines.whole_folder import flush, flush_folder, put_in_place, remove, remove_at_once
from eindecomp.errors import InputError, RunError
from eindecomp.models.checkpoint import config_text
from eindecomp.models.checkpoint_manifest import FORMAT, MANIFEST, VERSION, read_manifest
from eindecomp.store.sharded_tensors import ShardedTensor, file_of, write_blocks
from eindecomp.tra.boxes import volume

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from eindecomp.engines.file_stamp import FileStamp
    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.tensor import Tensor
    from eindecomp.graph.graph import Graph
    from eindecomp.models.checkpoint import Checkpoint, RunConfig
    from eindecomp.tra.boxes import Box

    Array = np.ndarray[Any, Any]
    Blocks = dict[str, tuple[Box, Array]]

T = TypeVar("T")

_STEP = re.compile(r"step-(\d{6,18})")
_UNFINISHED = re.compile(r"\.step-\d{6,18}\.[0-9a-f]{16}")


class _DamagedError(InputError):
    """A step is no longer as it was written."""


def was_written_by_ranks(path: Path) -> bool:
    """Whether a folder has checkpoints, or what was left of one."""
    patterns = (_STEP, _UNFINISHED)
    return path.is_dir() and any(
        pattern.fullmatch(each.name) for each in path.iterdir() for pattern in patterns
    )


class CheckpointFolder:
    """The folder in which a run keeps its last two checkpoints; all ranks call it together."""

    def __init__(self, path: Path, ranks: Ranks) -> None:
        self.path, self.ranks = path, ranks
        self._latest: int | None = None
        """The step that this run has read or written last."""

    def check(self) -> None:
        """Refuse now a place where nothing could be written."""
        if self.path.is_file():
            raise InputError(
                f"checkpoint {self.path} is a file, as one process writes it; ranks need a folder: "
                "load_checkpoint reads the file, save_checkpoint writes to a folder that exists"
            )
        at_first(self.ranks, self._make_folder)

    def _make_folder(self) -> None:
        try:
            self.path.mkdir(exist_ok=True)
            probe = self.path / f".step-{0:06d}.{token_hex(8)}"
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"checkpoint {self.path} cannot be written: {why}") from None

    def is_gone(self) -> bool:
        """Whether what was written last is no longer there."""
        here = self._latest is not None and (self._place(self._latest) / MANIFEST).is_file()
        return self.ranks.share_bytes(None if self.ranks.rank else b"%d" % here) == b"0"

    # Reading

    def load(self, graph: Graph | None, config: RunConfig | None = None) -> Checkpoint | None:
        """The last undamaged checkpoint, None if there is none at all.

        Among several ranks the state stays in its files, of which each reads what it places.
        """
        own = None if self.ranks.rank else json.dumps(sorted(self._steps(), reverse=True)).encode()
        steps: list[int] = json.loads(self.ranks.share_bytes(own))
        damaged: list[str] = []
        for step in steps:
            try:
                found = self._read(step, graph, config)
            except _DamagedError as error:
                damaged.append(f"the checkpoint of step {step} is damaged: {error}")
                continue
            if damaged and self.ranks.rank == 0:
                told = f"{'; '.join(damaged)}; that of step {step} is taken"
                warnings.warn(told, RuntimeWarning, stacklevel=2)
            self._latest = step
            return found
        if damaged:
            raise InputError(f"{self.path} has no undamaged checkpoint: {'; '.join(damaged)}")
        return None

    def _read(self, step: int, graph: Graph | None, config: RunConfig | None) -> Checkpoint:
        """The checkpoint of a step, unless it is damaged, or refused as that of another run."""
        manifest = self._undamaged(lambda: read_manifest(self._place(step)))
        own_graph, own_config = manifest.check_run(graph, config)
        found = self._undamaged(lambda: manifest.checkpoint(own_graph, own_config, self.ranks))
        if self.ranks.size > 1:
            return found
        return replace(found, state={name: array[...] for name, array in found.state.items()})

    def _undamaged(self, read: Callable[[], T]) -> T:
        """What all ranks read, if none of them finds damage."""
        try:
            return agree(self.ranks, read)
        except InputError as error:
            raise _DamagedError(str(error)) from error

    def _place(self, step: int) -> Path:
        return self.path / f"step-{step:06d}"

    def _steps(self) -> list[int]:
        """The steps that were complete once."""
        found: list[int] = []
        with suppress(FileNotFoundError):
            for each in self.path.iterdir():
                match = _STEP.fullmatch(each.name)
                if match and each.is_dir():
                    found.append(int(match[1]))
        return found

    # Writing

    def save(
        self,
        graph: Graph,
        tensors: Mapping[str, Tensor],
        losses: list[float],
        config: RunConfig,
    ) -> None:
        """Write the state after a step; what keeps a rank from it is raised by all."""
        ranks, step = self.ranks, len(losses)
        blocks = self._own_blocks(tensors, step)
        token = common_token(ranks)
        fresh = self.path / f".step-{step:06d}.{token}"
        try:
            stamp = agree(ranks, lambda: _write_own(fresh, ranks.rank, token, blocks))
            boxes = {name: box for name, (box, _) in blocks.items()}
            own = {"boxes": boxes, "stamp": None if stamp is None else stamp.to_json()}
            told = [json.loads(each) for each in ranks.gather_bytes(json.dumps(own).encode())]
            lying = _places(graph, tensors, [each["boxes"] for each in told])
            stamps = {file_of(fresh, rank).name: each["stamp"] for rank, each in enumerate(told)}
            content = {
                "format": FORMAT, "version": VERSION, "step": step, "ranks": ranks.size,
                "token": token, "losses": losses, "config": json.loads(config_text(config)),
                "files": {name: each for name, each in stamps.items() if each is not None},
                "tensors": {each.name: each.to_json() for each in lying}, "graph": str(graph),
            }  # fmt: skip
            at_first(ranks, lambda: self._complete(fresh, step, content))
        finally:
            if ranks.rank == 0:
                remove(fresh)
        self._latest = step

    def _own_blocks(self, tensors: Mapping[str, Tensor], step: int) -> Blocks:
        """What this rank writes, if all that any rank has is finite."""
        blocks: Blocks = {}
        wrong = b""
        for name, tensor in tensors.items():
            own = self.ranks.own_block(tensor)
            if own is None or (own[0] and not volume(own[0])):
                continue
            blocks[name] = own
            if own[1].dtype.kind in "fcV" and not np.isfinite(own[1]).all():
                wrong = wrong or name.encode()
        first = next((each for each in self.ranks.gather_bytes(wrong) if each), None)
        if first is not None:
            raise RunError(f"{first.decode()} is not finite after step {step}: it is not saved")
        return blocks

    def _complete(self, fresh: Path, step: int, content: dict[str, Any]) -> None:
        """Rank 0, when all files are on disk: let them be a checkpoint, and remove older ones."""
        fresh.mkdir(exist_ok=True)  # of a state without elements
        (fresh / MANIFEST).write_text(json.dumps(content))
        flush(fresh / MANIFEST)
        flush_folder(fresh)
        for other in self._steps():
            if other > step:  # of another run, which this one does not continue
                remove_at_once(self._place(other))
        put_in_place(fresh, self._place(step))
        for each in list(self.path.iterdir()):
            match = _STEP.fullmatch(each.name)
            if match and int(match[1]) not in (step, self._latest):
                remove_at_once(each)
            elif _UNFINISHED.fullmatch(each.name):
                remove(each)


def _write_own(fresh: Path, rank: int, token: str, blocks: Blocks) -> FileStamp | None:
    fresh.mkdir(exist_ok=True)
    stamp = write_blocks(fresh, rank, token, blocks)
    flush_folder(fresh)
    return stamp


def _places(
    graph: Graph, tensors: Mapping[str, Tensor], boxes: list[dict[str, list[list[int]]]]
) -> list[ShardedTensor]:
    """Where all blocks of the state lie, of what each rank tells of its own."""
    found: list[ShardedTensor] = []
    for name in tensors:
        held = [(rank, own[name]) for rank, own in enumerate(boxes) if name in own]
        blocks = tuple((rank, tuple((low, high) for low, high in box)) for rank, box in held)
        found.append(ShardedTensor(name, graph[name].shape, graph[name].dtype, blocks))
    return found
