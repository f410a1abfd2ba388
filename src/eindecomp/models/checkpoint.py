"""Checkpoints of training: one safetensors file, written as a whole or not at all.

Tensors have the names of the inputs they belong to; `fit.losses` holds the losses of all steps so
far. The metadata has the step, the graph as text (the optimiser is part of it) and the user's
configuration, so a file is all that training needs to continue. The text is parsed like any graph
and never evaluated, and every tensor is checked against the graph.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.engines.extras import extra
from eindecomp.engines.safetensors_file import NAMES
from eindecomp.errors import EinDecompError, InputError, quote, shorten
from eindecomp.graph.lone_labels import as_written
from eindecomp.graph.text.elaborate import parse
from eindecomp.models.optimizers import carried
from eindecomp.store.whole_file import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph

    Array = np.ndarray[Any, Any]

FORMAT = "eindecomp checkpoint 1"
LOSSES = "fit.losses"  # not an identifier, so no tensor can have this name
RunConfig = dict[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True, repr=False)
class Checkpoint:
    """The state of training after a step.

    Args:
        step: The number of steps so far, such as `100`.
        state: Arrays by name, such as `{"W": w}`; those of a folder are read from their files as
            they are sliced.
        losses: The loss of each step, such as `[0.7, 0.6]`.
        config: The user's own settings, such as `{"lr": 0.1}`.
        graph: The graph of one step, such as `ed.models.ffnn(8, 4, 4, 3)`; None unless the
            checkpoint was read from a file.

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
    for name in carried(graph):
        if graph[name].dtype.name not in NAMES:
            raise InputError(f"{name}: no checkpoint can hold {graph[name].dtype.name}")


def config_text(config: RunConfig) -> str:
    """A configuration as JSON."""
    try:
        return json.dumps(config, sort_keys=True, default=_plain_number)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"config is not JSON: {error}") from None


def _plain_number(value: Any) -> Any:
    """NumPy's numbers as Python's, the only ones that JSON knows."""
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return cast("Any", value).item()
    raise TypeError(f"{quote(value)} is a {type(value).__name__}")


def save_file(path: str | Path, graph: Graph, checkpoint: Checkpoint) -> None:
    """Replace a checkpoint; the old one stays if the new one cannot be written."""
    library, arrays = extra("safetensors"), extra("safetensors.numpy")
    check_storable(graph)
    tensors = {name: np.asarray(array, order="C") for name, array in checkpoint.state.items()}
    tensors[LOSSES] = np.array(checkpoint.losses, np.float64)
    metadata = {
        "format": FORMAT,
        "step": str(checkpoint.step),
        "graph": str(graph),
        "config": config_text(checkpoint.config),
    }
    try:
        with replacing(Path(path)) as fresh:
            arrays.save_file(tensors, fresh, metadata)
    except (library.SafetensorError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be written: {shorten(str(reason))}") from error


def load_file(
    path: str | Path, graph: Graph | None = None, config: RunConfig | None = None
) -> Checkpoint:
    """Read a checkpoint of the graph that it carries.

    A `graph` or a `config`, if given, must equal those in the file.
    """
    path = Path(path)
    library = extra("safetensors")
    try:
        with library.safe_open(path, framework="numpy") as file:
            metadata = cast("dict[str, str]", file.metadata() or {})
            step, found = _read_metadata(path, metadata, config)
            graph = read_graph(path, metadata.get("graph", ""), graph)
            state = _read_state(path, file, graph)
            losses = _read_losses(path, file, step)
    except library.SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file: {shorten(str(error))}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return Checkpoint(step, state, losses, found, graph)


def _read_metadata(
    path: Path, metadata: dict[str, str], config: RunConfig | None
) -> tuple[int, RunConfig]:
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path}: not a checkpoint: its format is {quote(metadata.get('format'))}")
    text = metadata.get("step", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise InputError(f"{path}: step: {quote(text)} is no number of steps")
    try:
        found = json.loads(metadata.get("config", ""))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: config: not JSON: {shorten(str(error))}") from error
    return int(text), check_config(path, found, config)


def check_config(path: Path, found: Any, config: RunConfig | None) -> RunConfig:
    """The configuration of a file, which must be the one that is given, if one is."""
    if not isinstance(found, dict):
        raise InputError(f"{path}: config: not an object")
    own = cast("RunConfig", found)
    # As texts: JSON makes lists of tuples, and NaN is not equal to itself.
    if config is not None and config_text(own) != config_text(config):
        differing = sorted(
            k
            for k in {*own, *config}
            if config_text({k: own.get(k)}) != config_text({k: config.get(k)})
        )
        told = [
            f"{shorten(k, 60)} was {quote(own.get(k))} and is {quote(config.get(k))}"
            for k in differing
        ]
        raise InputError(f"{path}: is of another configuration: {shorten(', '.join(told), 1000)}")
    return own


def read_graph(path: Path, text: str, graph: Graph | None) -> Graph:
    """The graph of a file, parsed only if the caller has not given the same one."""
    if graph is not None:
        if text != str(graph):
            raise InputError(f"{path}: is of another graph: {_first_difference(text, str(graph))}")
        return graph
    try:
        with as_written():
            parsed = parse(text, "graph")
        if carried(parsed):
            return parsed
    except EinDecompError as error:
        raise InputError(f"{path}: {shorten(str(error), 1000)}") from None
    raise InputError(f"{path}: its graph has nothing to train: {quote(text)}")


def _first_difference(old: str, new: str) -> str:
    lines = zip([*old.splitlines(), "its end"], [*new.splitlines(), "its end"], strict=False)
    was, now = next(((a, b) for a, b in lines if a != b), ("", ""))
    return f"it had {quote(was, 200)} where this one has {quote(now, 200)}"


def _read_state(path: Path, file: Any, graph: Graph) -> dict[str, Array]:
    check_storable(graph)
    names = set(file.keys())
    state: dict[str, Array] = {}
    for name in carried(graph):
        vertex = graph[name]
        if name not in names:
            raise InputError(f"{path}: has no tensor {name!r}")
        # Checked before it is read: files may have types that NumPy lacks.
        lies = file.get_slice(name)
        shape, stored = tuple(lies.get_shape()), str(lies.get_dtype())
        if shape != vertex.shape or stored != NAMES[vertex.dtype.name]:
            raise InputError(
                f"{path}: {name} is of {stored} {quote(shape)}; "
                f"the graph's is of {NAMES[vertex.dtype.name]} {vertex.shape}"
            )
        state[name] = file.get_tensor(name)
    return state


def _read_losses(path: Path, file: Any, step: int) -> list[float]:
    names = set(file.keys())
    lies = file.get_slice(LOSSES) if LOSSES in names else None
    if lies is None or (str(lies.get_dtype()), list(lies.get_shape())) != ("F64", [step]):
        raise InputError(f"{path}: has not the losses of {step} steps")
    return file.get_tensor(LOSSES).tolist()
