"""Checkpoints of training: a folder with one folder for each step.

Every rank writes the blocks that it is the first to have. Any other number of ranks can read them:
each reads what it needs of the blocks it meets. The graph and the user's configuration are kept as
well, so a checkpoint is all that training needs to continue. The graph's text is parsed like any
graph and never evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import numpy as np
import orjson

from eindecomp.engines.engine import Ranks, at_first
from eindecomp.engines.safetensors_file import NAMES, StoredTensor, map_file, tensors_of
from eindecomp.engines.step_folders import MANIFEST, SavedStep, StepFolders, step_number
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import EinDecompError, InputError, PlanError, RunError, extra, quote, shorten
from eindecomp.graph.checks import as_written
from eindecomp.graph.graph import Graph
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.dtypes import Array, DType
from eindecomp.layout.boxes import Box, meet, shape_of, show_box, volume, within
from eindecomp.store.field import Field

RunConfig = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True, repr=False)
class Checkpoint:
    """The state of training after a step.

    Args:
        step: The number of steps so far, such as `100`.
        state: Arrays by name, such as `{"W": w}`; among several ranks they stay in their files and
            are read as they are sliced.
        losses: The loss of each step, such as `[0.7, 0.6]`.
        config: The user's own settings, such as `{"lr": 0.1}`.
        graph: The graph of one step, such as `ed.models.ffnn(8, 4, 4, 3)`; None unless the
            checkpoint was read from its folder.

    Examples:
        >>> Checkpoint(1, {"W": np.zeros(3)}, [0.7]).step
        1
    """

    step: int
    state: Mapping[str, Any]
    losses: list[float]
    config: RunConfig = field(default_factory=RunConfig)
    graph: Graph | None = None

    def __repr__(self) -> str:
        return f"<Checkpoint after step {self.step}: {', '.join(self.state)}>"


def check_storable(graph: Graph) -> None:
    """Refuse a state that no checkpoint can hold."""
    for name in graph.ties:
        if graph[name].dtype.name not in NAMES:
            raise InputError(f"{name}: no checkpoint can hold {graph[name].dtype.name}")


def config_text(config: Mapping[str, Any]) -> bytes:
    """A configuration as JSON."""
    try:
        return orjson.dumps(config, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InputError(f"config is not JSON: {error}") from None


def check_config(path: Path, stored: Any, config: RunConfig | None) -> RunConfig:
    """The configuration of a checkpoint, which must be the one that is given, if one is."""
    if not isinstance(stored, dict):
        raise InputError(f"{path}: config: not an object")
    own = cast("RunConfig", stored)
    given = own if config is None else config
    # As texts: JSON makes lists of tuples.
    differing = [
        f"{shorten(name, 60)} was {quote(own.get(name))} and is {quote(given.get(name))}"
        for name in sorted({*own, *given})
        if config_text({"": own.get(name)}) != config_text({"": given.get(name)})
    ]
    if differing:
        told = shorten(", ".join(differing), 1000)
        raise InputError(f"{path}: is of another configuration: {told}")
    return own


def read_graph(path: Path, text: str, graph: Graph | None) -> Graph:
    """The graph of a checkpoint, parsed only if the caller has not given the same one."""
    if graph is not None:
        if text != str(graph):
            raise InputError(f"{path}: is of another graph: {_first_difference(text, str(graph))}")
        return graph
    try:
        with as_written():
            parsed = parse(text, "graph")
        if parsed.ties:
            return parsed
    except EinDecompError as error:
        raise InputError(f"{path}: {shorten(str(error), 1000)}") from None
    raise InputError(f"{path}: its graph has nothing to train: {quote(text)}")


def _first_difference(old: str, new: str) -> str:
    lines = zip([*old.splitlines(), "its end"], [*new.splitlines(), "its end"], strict=False)
    was, now = next(((a, b) for a, b in lines if a != b), ("", ""))
    return f"it had {quote(was, 200)} where this one has {quote(now, 200)}"


class CheckpointFolder:
    """The folder in which a run keeps its last two checkpoints; all ranks call it together."""

    def __init__(self, path: Path, ranks: Ranks) -> None:
        self.path, self.ranks = path, ranks
        self._steps = StepFolders(path, ranks)
        self.latest: int | None = None
        """The step that this run has read or written last."""

    def check(self) -> None:
        """Refuse at once a folder in which nothing can be written."""
        extra("safetensors")  # which reads what is written
        at_first(self.ranks, self._make_folder)

    def _make_folder(self) -> None:
        if self.path.is_file():
            raise InputError(f"checkpoint {self.path} is a file; checkpoints need a folder")
        try:
            self.path.mkdir(exist_ok=True)
            probe = self.path / f".step-{0:06d}.{token_hex(8)}"
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"checkpoint {self.path} cannot be written: {why}") from None

    def load(self, graph: Graph | None, config: RunConfig | None = None) -> Checkpoint | None:
        """The last checkpoint, None if there is none.

        Among several ranks the state stays in its files, of which each reads what it places.
        """
        step = self._steps.last()
        if step is None:
            return None
        self.latest = step.number
        return self.read(step, graph, config)

    def read(self, step: SavedStep, graph: Graph | None, config: RunConfig | None) -> Checkpoint:
        """The checkpoint of a step, unless it is of another run."""
        fields, path = Field(step.manifest), step.place / MANIFEST
        try:
            graph = read_graph(path, str(fields["graph"].value), graph)
            config = check_config(path, fields["config"].value, config)
            losses = _losses(fields["losses"], step.number)
            check_storable(graph)
            state = read_sharded(step, fields["shards"], graph)
        except PlanError as error:
            raise InputError(f"{path}: {error}") from None
        if self.ranks.size == 1:
            state = {name: array[...] for name, array in state.items()}
        return Checkpoint(step.number, state, losses, config, graph)

    def save(
        self, graph: Graph, tensors: Mapping[str, Tensor], losses: list[float], config: RunConfig
    ) -> None:
        """Write the state after a step; if one rank cannot, all raise its error."""
        step = len(losses)
        blocks = self._own_blocks(tensors, step)
        boxes = {name: box for name, (box, _) in blocks.items()}
        arrays = {name: np.asarray(block) for name, (_, block) in blocks.items()}
        told = {"losses": losses, "config": orjson.loads(config_text(config)), "graph": str(graph)}
        keep = () if self.latest is None else (self.latest,)
        self._steps.write(step, arrays, {"boxes": boxes}, told, keep)
        self.latest = step

    def _own_blocks(self, tensors: Mapping[str, Tensor], step: int) -> dict[str, tuple[Box, Array]]:
        """The blocks that this rank writes, once all ranks have found theirs finite."""
        blocks: dict[str, tuple[Box, Array]] = {}
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


def _losses(field: Field, step: int) -> list[float]:
    listed = [each.value for each in field.items()]
    if len(listed) != step:
        raise field.wrong(f"must be those of {step} steps, not of {len(listed)}")
    for value in listed:
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            raise field.wrong(f"{quote(value)} is no number")
    return [float(value) for value in cast("list[float]", listed)]


def save_checkpoint(path: str | Path, graph: Graph, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in place of those before; they stay if it cannot be written.

    Args:
        path: The folder, such as `"run"`.
        graph: The graph of one step, such as `ed.models.ffnn(8, 4, 4, 3)`.
        checkpoint: What to write, such as `Checkpoint(1, state, [0.7])`.

    Raises:
        InputError: It cannot be written.

    Examples:
        >>> import tempfile, eindecomp as ed
        >>> graph = ed.models.ffnn(8, 4, 4, 3)
        >>> state = ed.models.initial(graph)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/run", graph, Checkpoint(1, state, [0.7]))
        ...     load_checkpoint(f"{folder}/run").losses
        [0.7]
    """
    check_storable(graph)
    state: Any = {name: checkpoint.state[name] for name in graph.ties}
    folder = CheckpointFolder(Path(path), _OneProcess())
    folder.save(graph, state, checkpoint.losses, checkpoint.config)


class _OneProcess(Ranks):
    """A process that has whole arrays in place of an engine's tensors."""

    def own_block(self, tensor: Any) -> tuple[Box, Array]:
        """All of an array."""
        return tuple((0, size) for size in tensor.shape), tensor


def load_checkpoint(
    path: str | Path, graph: Graph | None = None, config: RunConfig | None = None
) -> Checkpoint:
    """Read the last checkpoint of a folder, or that of a step's folder.

    Args:
        path: The folder, such as `"run"`, or one step of it, such as `"run/step-000100"`.
        graph: Must equal that of the checkpoint, such as `ed.models.ffnn(8, 4, 4, 3)`.
        config: Must equal that of the checkpoint, such as `{"lr": 0.1}`.

    Raises:
        InputError: It is no such checkpoint, any byte of it has changed, or safetensors is not
            installed.

    Examples:
        >>> load_checkpoint("nowhere")
        Traceback (most recent call last):
        eindecomp.errors.InputError: nowhere: has no complete checkpoint
    """
    path = Path(path)
    folder = CheckpointFolder(path, Ranks())
    if step_number(path) is not None:
        return folder.read(StepFolders(path.parent, Ranks()).read(path), graph, config)
    checkpoint = folder.load(graph, config)
    if checkpoint is None:
        raise InputError(f"{path}: has no complete checkpoint")
    return checkpoint


# Tensors in the shards of a checkpoint, for readers that want other blocks than were written. A
# manifest says which shard holds which box of which tensor. Any box is put together from
# the blocks that it meets, of which nothing else is read.

OpenedShard = tuple[Mapping[str, StoredTensor], Array]


def read_sharded(step: SavedStep, shards: Field, graph: Graph) -> dict[str, ShardedArray]:
    """The tensors of a step; the boxes in its manifest must hold every element exactly once."""
    wanted = {name: graph[name] for name in graph.ties}
    blocks: dict[str, list[tuple[int, Box]]] = {name: [] for name in wanted}
    for rank, shard in enumerate(shards.items()):
        for name, sides in shard["boxes"].members():
            if name not in wanted:
                raise sides.wrong("the graph has no such state")
            blocks[name].append((rank, _box(sides, wanted[name].shape)))
    opened: dict[int, OpenedShard] = {}
    arrays: dict[str, ShardedArray] = {}
    for name, vertex in wanted.items():
        if sum(volume(box) for _, box in blocks[name]) != prod(vertex.shape):
            raise shards.wrong(f"do not hold every element of {name} {list(vertex.shape)} once")
        own = tuple(blocks[name])
        arrays[name] = ShardedArray(step, name, vertex.shape, vertex.dtype, own, opened)
    return arrays


def _box(field: Field, shape: tuple[int, ...]) -> Box:
    box: list[tuple[int, int]] = []
    sides = field.items(len(shape), f"a box of {len(shape)} sides")
    for side, size in zip(sides, shape, strict=True):
        begin, end = side.items(2, "where a side begins and ends")
        low = begin.whole(0, size)
        box.append((low, end.whole(low, size)))
    return tuple(box)


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """A tensor in files, read slice by slice: each is put together from the blocks it meets."""

    step: SavedStep
    name: str
    shape: tuple[int, ...]
    dtype: DType
    blocks: tuple[tuple[int, Box], ...]
    """For each block, the rank whose shard holds it, and its box."""
    opened: dict[int, OpenedShard]
    """The shards opened so far, shared by all tensors of the step."""

    def __getitem__(self, where: Any) -> Array:
        given: tuple[Any, ...] = (slice(None),) * len(self.shape)
        if where is not ...:
            given = cast("tuple[Any, ...]", where) if isinstance(where, tuple) else (where,)
        plain = all(isinstance(each, slice) and each.step in (None, 1) for each in given)
        if len(given) != len(self.shape) or not plain:
            return self[...][where]
        sides = [each.indices(size) for each, size in zip(given, self.shape, strict=True)]
        box = tuple((low, max(low, high)) for low, high, _ in sides)
        read = np.zeros(shape_of(box), self.dtype)
        for rank, held in self.blocks:
            shared = meet(held, box)
            if shared is not None:
                read[within(shared, box)] = self._block(rank, held)[within(shared, held)]
        return read

    def _block(self, rank: int, box: Box) -> Array:
        """A view of a block in its file, which must match the manifest."""
        path = self.step.shard(rank)
        if rank not in self.opened:
            self.opened[rank] = tensors_of(path)[0], map_file(path)
        tensors, content = self.opened[rank]
        stored = tensors.get(self.name)
        wanted = NAMES[self.dtype.name], shape_of(box)
        if stored is None or (stored.dtype, stored.shape) != wanted:
            what = "nothing" if stored is None else f"{stored.dtype} {quote(stored.shape)}"
            raise InputError(
                f"{path} has {what} for {self.name}{show_box(box)}, not {wanted[0]} {wanted[1]}"
            )
        return stored.view(content)
