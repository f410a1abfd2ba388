"""The manifest of a checkpoint that ranks have written: of which run it is, and where blocks lie.

Its `files` has the size and the checksum of each rank's file; manifests of old are without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from eindecomp.engines.file_stamp import FileStamp
from eindecomp.errors import InputError, PlanError, quote, shorten
from eindecomp.models.checkpoint import Checkpoint, check_config, check_storable, read_graph
from eindecomp.models.optimizers import carried
from eindecomp.store.field import Field
from eindecomp.store.sharded_tensors import (
    BlockFiles,
    ShardedArray,
    check_file,
    file_of,
    read_sharded,
)

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.engines.ranks import Ranks
    from eindecomp.graph.graph import Graph
    from eindecomp.models.checkpoint import RunConfig
    from eindecomp.store.sharded_tensors import ShardedTensor

FORMAT = "eindecomp checkpoint folder"
VERSION = 1
MANIFEST = "complete.json"
_FIELDS = ("format", "version", "step", "ranks", "token", "losses", "config", "tensors", "graph")
_LARGEST = 1 << 30  # bytes of a manifest


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a step, of which no more is known than that it has all its fields."""

    folder: Path
    fields: Field

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder / MANIFEST

    def check_run(self, graph: Graph | None, config: RunConfig | None) -> tuple[Graph, RunConfig]:
        """Its graph and configuration, which must be those that are given."""
        try:
            self.fields["format"].one_of([FORMAT])
            self.fields["version"].whole(VERSION, VERSION)
        except PlanError as error:
            raise InputError(f"{self.path}: {error}") from None
        graph = read_graph(self.path, str(self.fields["graph"].value), graph)
        check_storable(graph)
        return graph, check_config(self.path, self.fields["config"].value, config)

    def checkpoint(self, graph: Graph, config: RunConfig, ranks: Ranks) -> Checkpoint:
        """The checkpoint, if it is undamaged as far as this rank looks.

        Each file is read by one of the ranks that call this together.
        """
        try:
            self.fields.check_names(_FIELDS, optional=("files",))
            step = self.fields["step"].whole(0, 10**18)
            losses = _losses(self.fields["losses"], step)
            token = self.fields["token"].text()
            tensors = self._tensors(graph)
            stamps = self._stamps(tensors)
        except PlanError as error:
            raise InputError(f"{self.path}: {error}") from None
        looked_at = BlockFiles(self.folder, token)
        for writer, stamp in stamps.items():
            if writer % ranks.size == ranks.rank:
                check_file(looked_at, writer, tensors, stamp)
        files = BlockFiles(self.folder, token)
        state = {each.name: ShardedArray(each, files) for each in tensors}
        return Checkpoint(step, state, losses, config, graph)

    def _tensors(self, graph: Graph) -> list[ShardedTensor]:
        """Where the state of a graph lies."""
        ranks = self.fields["ranks"].whole(1, 1 << 24)
        lying = self.fields["tensors"]
        lying.check_names(list(carried(graph)), unknown="the graph has no state")
        found: list[ShardedTensor] = []
        for name, entry in lying.members():
            tensor = read_sharded(name, entry, ranks)
            vertex = graph[name]
            if (tensor.shape, tensor.dtype) != (vertex.shape, vertex.dtype):
                raise entry.wrong(
                    f"is of {tensor.dtype} {list(tensor.shape)}; the graph's is of "
                    f"{vertex.dtype} {list(vertex.shape)}"
                )
            found.append(tensor)
        return found

    def _stamps(self, tensors: list[ShardedTensor]) -> dict[int, FileStamp | None]:
        """The ranks that have written blocks, and the stamps of their files, if there are any."""
        writers = sorted({rank for tensor in tensors for rank, _ in tensor.blocks})
        if "files" not in self.fields:
            return dict.fromkeys(writers)
        listed = self.fields["files"]
        return {rank: _stamp(listed[file_of(self.folder, rank).name]) for rank in writers}


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a step, in which nothing may be missing."""
    path = folder / MANIFEST
    fields = Field(_read_json(path))
    try:
        for name in _FIELDS:
            _ = fields[name]
    except PlanError as error:
        raise InputError(f"{path}: {error}") from None
    return Manifest(folder, fields)


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


def _stamp(field: Field) -> FileStamp:
    field.check_names(("bytes", "crc32"))
    return FileStamp(field["bytes"].whole(), field["crc32"].whole(0, (1 << 32) - 1))
