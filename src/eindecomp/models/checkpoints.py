"""Where training keeps its state: a file that one process writes, or a folder that ranks write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eindecomp.engines.ranks import Alone, ranks_of
from eindecomp.errors import InputError, RunError
from eindecomp.models.checkpoint import Checkpoint as Checkpoint
from eindecomp.models.checkpoint import check_storable, load_file, save_file
from eindecomp.models.checkpoint_folder import CheckpointFolder, was_written_by_ranks
from eindecomp.store.whole_file import check_writable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.tensor import Tensor
    from eindecomp.graph.graph import Graph
    from eindecomp.models.checkpoint import RunConfig
    from eindecomp.tra.boxes import Box

    Array = np.ndarray[Any, Any]


class CheckpointStore(Protocol):
    """Where a run keeps its checkpoints."""

    def check(self) -> None:
        """Refuse now a place where nothing could be written."""
        ...

    def load(self, graph: Graph | None, config: RunConfig | None = None) -> Checkpoint | None:
        """The last checkpoint, None if there is none."""
        ...

    def save(
        self,
        graph: Graph,
        tensors: Mapping[str, Tensor],
        losses: list[float],
        config: RunConfig,
    ) -> None:
        """Write the state after a step, in place of older ones."""
        ...

    def is_gone(self) -> bool:
        """Whether what was written last is no longer there."""
        ...


def store_of(path: Path, engine: object = None) -> CheckpointStore:
    """The folder that an engine's ranks write, also if one process goes on; otherwise a file."""
    ranks = ranks_of(engine)
    if isinstance(ranks, Alone) and not was_written_by_ranks(path):
        return CheckpointFile(path)
    return CheckpointFolder(path, ranks)


class CheckpointFile:
    """One safetensors file, for which the state is gathered."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Refuse now a place where nothing could be written."""
        if self.path.exists() and not self.path.is_file():
            raise InputError(f"checkpoint {self.path} is no file")
        try:
            check_writable(self.path)
        except OSError as error:
            raise InputError(
                f"checkpoint {self.path} cannot be written: {error.strerror}"
            ) from None

    def load(self, graph: Graph | None, config: RunConfig | None = None) -> Checkpoint | None:
        """What the file holds, if it is there."""
        return load_file(self.path, graph, config) if self.path.exists() else None

    def save(
        self,
        graph: Graph,
        tensors: Mapping[str, Tensor],
        losses: list[float],
        config: RunConfig,
    ) -> None:
        """Replace the file, unless the state is none that training could continue from."""
        state = {name: tensor.numpy() for name, tensor in tensors.items()}
        for name, array in state.items():
            if array.dtype.kind != "i" and not np.isfinite(array).all():
                raise RunError(f"{name} is not finite after step {len(losses)}: it is not saved")
        save_file(self.path, graph, Checkpoint(len(losses), state, losses, config))

    def is_gone(self) -> bool:
        """Whether the file is no longer there."""
        return not self.path.exists()


def save_checkpoint(path: str | Path, graph: Graph, checkpoint: Checkpoint) -> None:
    """Replace a checkpoint; the old one stays if the new one cannot be written.

    Where there is a folder, it is written as ranks write theirs, which go on from it.

    Args:
        path: The file or folder, such as `"run.safetensors"`.
        graph: The graph of one step, such as `ed.models.ffnn(8, 4, 4, 3)`.
        checkpoint: What to write, such as `Checkpoint(1, state, [0.7])`.

    Raises:
        InputError: It cannot be written, or safetensors is not installed.

    Examples:
        >>> import tempfile, eindecomp as ed
        >>> graph = ed.models.ffnn(8, 4, 4, 3)
        >>> state = ed.models.initial(graph)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(f"{folder}/run", graph, Checkpoint(1, state, [0.7]))
        ...     load_checkpoint(f"{folder}/run").losses
        [0.7]
    """
    path = Path(path)
    if not path.is_dir():
        save_file(path, graph, checkpoint)
        return
    check_storable(graph)
    state: Any = checkpoint.state
    CheckpointFolder(path, _Writer()).save(graph, state, checkpoint.losses, checkpoint.config)


class _Writer(Alone):
    """One process that has arrays, and no tensors of an engine."""

    def own_block(self, tensor: Any) -> tuple[Box, Array]:
        """All of an array."""
        return tuple((0, size) for size in tensor.shape), tensor


def load_checkpoint(
    path: str | Path, graph: Graph | None = None, config: RunConfig | None = None
) -> Checkpoint:
    """Read a checkpoint of the graph that it carries: a file, or the last undamaged of a folder.

    Args:
        path: The file or folder, such as `"run.safetensors"`.
        graph: Must equal that of the checkpoint, such as `ed.models.ffnn(8, 4, 4, 3)`.
        config: Must equal that of the checkpoint, such as `{"lr": 0.1}`.

    Raises:
        InputError: It is no such checkpoint, or safetensors is not installed.

    Examples:
        >>> load_checkpoint("no.safetensors")
        Traceback (most recent call last):
        eindecomp.errors.InputError: no.safetensors: cannot be read: ...
    """
    path = Path(path)
    if not path.is_dir():
        return load_file(path, graph, config)
    found = CheckpointFolder(path, Alone()).load(graph, config)
    if found is None:
        raise InputError(f"{path}: has no complete checkpoint")
    return found
