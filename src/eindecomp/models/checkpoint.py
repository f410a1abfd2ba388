"""The state of training at a step, and of which run it is.

The graph and the user's configuration are kept with it, so a checkpoint is all that training needs
to continue. The graph's text is parsed like any graph and never evaluated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from eindecomp.engines.safetensors_file import NAMES
from eindecomp.errors import EinDecompError, InputError, quote, shorten
from eindecomp.graph.lone_labels import as_written
from eindecomp.graph.text.elaborate import parse
from eindecomp.models.optimizers import carried

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eindecomp.graph.graph import Graph

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


def check_config(path: Path, found: Any, config: RunConfig | None) -> RunConfig:
    """The configuration of a checkpoint, which must be the one that is given, if one is."""
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
    """The graph of a checkpoint, parsed only if the caller has not given the same one."""
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
