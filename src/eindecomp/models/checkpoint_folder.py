"""Checkpoints of training that ranks write together: a folder with one folder for each step.

`step-000100/rank-0003.safetensors` has the blocks that rank 3 is the first to have, and
`complete.json` says where every block of the state lies. A step is written beside its place and
gets its name when all ranks have told that theirs is on disk; so whatever has its name is complete.
It can be read with any other number of ranks: each reads what it needs of the blocks it meets.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.engines.ranks import agree, at_first, common_token
from eindecomp.engines.whole_folder import flush, flush_folder, put_in_place, remove, remove_at_once
from eindecomp.errors import InputError, PlanError, RunError, quote, shorten
from eindecomp.models.checkpoint import (
    Checkpoint,
    check_config,
    check_storable,
    config_text,
    read_graph,
)
from eindecomp.models.optimizers import carried
from eindecomp.store.field import Field
from eindecomp.store.sharded_tensors import (
    BlockFiles,
    ShardedArray,
    ShardedTensor,
    read_sharded,
    write_blocks,
)
from eindecomp.tra.boxes import volume

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.tensor import Tensor
    from eindecomp.graph.graph import Graph
    from eindecomp.models.checkpoint import RunConfig
    from eindecomp.tra.boxes import Box

    Array = np.ndarray[Any, Any]
    Blocks = dict[str, tuple[Box, Array]]

FORMAT = "eindecomp checkpoint folder"
VERSION = 1
MANIFEST = "complete.json"
_FIELDS = ("format", "version", "step", "ranks", "token", "losses", "config", "tensors", "graph")
_STEP = re.compile(r"step-(\d{6,18})")
_UNFINISHED = re.compile(r"\.step-\d{6,18}\.[0-9a-f]{16}")
_LARGEST = 1 << 30  # bytes of a manifest


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
        here = self._latest in self._steps()
        return self.ranks.share_bytes(None if self.ranks.rank else b"%d" % here) == b"0"

    # Reading

    def load(self, graph: Graph | None, config: RunConfig | None = None) -> Checkpoint | None:
        """The last complete checkpoint, None if there is none.

        Among several ranks the state stays in its files, of which each reads what it places.
        """
        own = None if self.ranks.rank else str(max(self._steps(), default=-1)).encode()
        step = int(self.ranks.share_bytes(own))
        if step < 0:
            return None
        found = read_step(self.path / f"step-{step:06d}", graph, config)
        self._latest = step
        if self.ranks.size > 1:
            return found
        return replace(found, state={name: array[...] for name, array in found.state.items()})

    def _steps(self) -> list[int]:
        """The steps of which there is a complete checkpoint."""
        found: list[int] = []
        with suppress(FileNotFoundError):
            for each in self.path.iterdir():
                match = _STEP.fullmatch(each.name)
                if match and (each / MANIFEST).is_file():
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
        place = self.path / f"step-{step:06d}"
        fresh = self.path / f".step-{step:06d}.{token}"
        try:
            agree(ranks, lambda: _write_own(fresh, ranks.rank, token, blocks))
            boxes = json.dumps({name: box for name, (box, _) in blocks.items()}).encode()
            lying = _places(graph, tensors, ranks.gather_bytes(boxes))
            content = {
                "format": FORMAT, "version": VERSION, "step": step, "ranks": ranks.size,
                "token": token, "losses": losses, "config": json.loads(config_text(config)),
                "tensors": {each.name: each.to_json() for each in lying}, "graph": str(graph),
            }  # fmt: skip
            at_first(ranks, lambda: self._complete(fresh, place, step, content))
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

    def _complete(self, fresh: Path, place: Path, step: int, content: dict[str, Any]) -> None:
        """Rank 0, when all files are on disk: let them be a checkpoint, and remove older ones."""
        fresh.mkdir(exist_ok=True)  # of a state without elements
        (fresh / MANIFEST).write_text(json.dumps(content))
        flush(fresh / MANIFEST)
        flush_folder(fresh)
        for other in self._steps():
            if other > step:  # of another run, which this one does not continue
                remove_at_once(self.path / f"step-{other:06d}")
        put_in_place(fresh, place)
        for each in list(self.path.iterdir()):
            match = _STEP.fullmatch(each.name)
            if match and int(match[1]) not in (step, self._latest):
                remove_at_once(each)
            elif _UNFINISHED.fullmatch(each.name):
                remove(each)


def _write_own(fresh: Path, rank: int, token: str, blocks: Blocks) -> None:
    fresh.mkdir(exist_ok=True)
    write_blocks(fresh, rank, token, blocks)
    flush_folder(fresh)


def _places(graph: Graph, tensors: Mapping[str, Tensor], told: list[bytes]) -> list[ShardedTensor]:
    """Where all blocks of the state lie, of what each rank tells of its own."""
    boxes: list[dict[str, list[list[int]]]] = [json.loads(each) for each in told]
    found: list[ShardedTensor] = []
    for name in tensors:
        held = [(rank, own[name]) for rank, own in enumerate(boxes) if name in own]
        blocks = tuple((rank, tuple((low, high) for low, high in box)) for rank, box in held)
        found.append(ShardedTensor(name, graph[name].shape, graph[name].dtype, blocks))
    return found


def read_step(folder: Path, graph: Graph | None, config: RunConfig | None) -> Checkpoint:
    """Read the checkpoint of one step, which must be of the graph and the configuration."""
    path = folder / MANIFEST
    fields = Field(_read_json(path))
    try:
        fields.check_names(_FIELDS)
        fields["format"].one_of([FORMAT])
        fields["version"].whole(VERSION, VERSION)
        step = fields["step"].whole(0, 10**18)
        losses = _losses(fields["losses"], step)
        ranks = fields["ranks"].whole(1, 1 << 24)
        files = BlockFiles(folder, fields["token"].text())
        graph = read_graph(path, str(fields["graph"].value), graph)
        check_storable(graph)
        lying = fields["tensors"]
        lying.check_names(list(carried(graph)), unknown="the graph has no state")
        state: dict[str, Any] = {}
        for name, entry in lying.members():
            tensor = read_sharded(name, entry, ranks)
            vertex = graph[name]
            if (tensor.shape, tensor.dtype) != (vertex.shape, vertex.dtype):
                raise entry.wrong(
                    f"is of {tensor.dtype} {list(tensor.shape)}; the graph's is of "
                    f"{vertex.dtype} {list(vertex.shape)}"
                )
            state[name] = ShardedArray(tensor, files)
    except PlanError as error:
        raise InputError(f"{path}: {error}") from None
    own = check_config(path, fields["config"].value, config)
    return Checkpoint(step, state, losses, own, graph)


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{path}: is larger than a manifest can be")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {shorten(str(error))}") from error


def _losses(field: Field, step: int) -> list[float]:
    listed = [each.value for each in field.items()]
    if len(listed) != step:
        raise field.wrong(f"must be those of {step} steps, not of {len(listed)}")
    for value in listed:
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            raise field.wrong(f"{quote(value)} is no number")
    return [float(value) for value in cast("list[float]", listed)]
