"""The gallery's ten problems: their graphs at any size, data for them, and how they are planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import experts
import ising
import numpy as np
import viterbi

import eindecomp as ed

HERE = Path(__file__).parent
DEVICES = 8
"""For how many devices the pages show plans."""

Array = np.ndarray[Any, Any]
Data = Callable[[ed.Graph, np.random.Generator], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, whose program is `NAME.ein` or a function that makes its graph."""

    name: str
    title: str
    line: str
    naive: tuple[str, ...]
    """Labels along which everything is cut by somebody who does not plan."""
    small: Mapping[str, int]
    """Sizes for tests."""
    data: Data
    make: Callable[..., ed.Graph] | None = None
    inputs: str = "free"
    drawn: Mapping[str, int] | None = None
    """Sizes for the picture, where the program's would make it too large."""
    peers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Arguments of the same in NumPy and PyTorch that no tensor's size tells."""

    def graph(self, sizes: Mapping[str, int] | None = None) -> ed.Graph:
        """Its graph, in the sizes of its program unless others are given."""
        if self.make is not None:
            return self.make(**sizes or {})
        text = (HERE / f"{self.name}.ein").read_text(encoding="utf-8")
        for label, size in (sizes or {}).items():
            text, found = re.subn(rf"\b{label}: \d+", f"{label}: {size}", text)
            if not found:
                raise ValueError(f"{self.name} has no label {label!r} with a size")
        return ed.parse(text, f"{self.name}.ein")

    def plan(
        self, devices: int | None = DEVICES, sizes: Mapping[str, int] | None = None
    ) -> ed.Plan:
        """Its plan, for one device a core if `devices` is None."""
        return ed.plan(self.graph(sizes), devices, inputs=self.inputs)

    def arguments(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """What the same in NumPy and PyTorch takes besides the tensors."""
        return {name: sizes.get(name, value) for name, value in self.peers.items()}


def normal(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:
    """Normal numbers; of tensors of several labels, such that products of them stay moderate."""
    return {
        v.name: rng.standard_normal(v.shape, np.float32) / np.float32(max(v.shape[0], 1) ** 0.5)
        for v in graph.inputs
    }


def roads(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:
    """A directed graph in which about four edges leave every node."""
    n = graph["D"].shape[0]
    lengths = rng.uniform(1, 2, (n, n)).astype(np.float32)
    lengths[rng.random((n, n)) > 4 / n] = np.inf
    np.fill_diagonal(lengths, 0)
    return {"D": lengths}


def probabilities(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:
    """Logarithms of random probabilities."""
    drawn = {v.name: rng.exponential(size=v.shape) for v in graph.inputs}
    return {n: np.log(a / a.sum(-1, keepdims=True)).astype(np.float32) for n, a in drawn.items()}


def bodies(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:
    """A cloud of bodies whose masses add up to 1, at rest on average."""
    drawn = {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
    mass = np.abs(drawn["m"])
    return drawn | {"m": mass / mass.sum(), "dt": 0.01, "soft": 0.05}


def critical(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:  # noqa: ARG001
    """Bonds at the critical temperature."""
    return dict(ising.weights(graph["T"].shape[0].bit_length() - 1, ising.CRITICAL))


def tracks(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:
    """Objects that drift in the plane, whose position is measured."""
    root = rng.standard_normal(graph["P"].shape, np.float32)
    still = np.eye(4, dtype=np.float32)
    return {
        "x": rng.standard_normal(graph["x"].shape, np.float32),
        "P": root @ root.swapaxes(1, 2) + still,
        "z": rng.standard_normal(graph["z"].shape, np.float32),
        "F": still + np.float32(0.1) * np.eye(4, k=2, dtype=np.float32),
        "Q": np.float32(0.01) * still,
        "H": still[:2],
        "R": np.float32(0.1) * still[:2, :2],
    }


def citations(graph: ed.Graph, rng: np.random.Generator) -> dict[str, Any]:
    """Edges between random nodes."""
    nodes, edges = graph["X"].shape[0], graph["to"].shape[0]
    ends = rng.integers(0, nodes, (2, edges), np.int32)
    degree = np.maximum(np.bincount(ends.ravel(), minlength=nodes), 1)
    scale = (1 / np.sqrt(degree)).astype(np.float32)
    return normal(graph, rng) | {"from": ends[0], "to": ends[1], "s": scale}


ATTENTION = Problem(
    "attention",
    "Attention",
    "Causal self-attention of eight heads.",
    naive=("s", "t"),
    small={"s": 12, "a": 16, "h": 4, "d": 4},
    data=normal,
)
KMEANS = Problem(
    "kmeans",
    "k-means",
    "A step of Lloyd's algorithm: nearest centres, then means.",
    naive=("k",),
    small={"n": 50, "d": 6, "k": 5},
    data=normal,
)
SHORTEST_PATHS = Problem(
    "shortest_paths",
    "Shortest paths",
    "All pairs, by squaring a matrix in the min-plus algebra.",
    naive=("i",),
    small={"i": 30, "j": 30},
    data=roads,
)
VITERBI = Problem(
    "viterbi",
    "Viterbi",
    "The likeliest states of a hidden Markov model, there and back.",
    naive=("j", "i"),
    small={"steps": 5, "batch": 2, "states": 6},
    data=probabilities,
    make=viterbi.graph,
    drawn={"steps": 4},
)
MTTKRP = Problem(
    "mttkrp",
    "MTTKRP",
    "The three products of a CP decomposition.",
    naive=("i", "j"),
    small={"i": 8, "j": 12, "k": 10, "r": 4},
    data=normal,
    inputs="sharded",
)
EXPERTS = Problem(
    "experts",
    "Mixture of experts",
    "Tokens scattered to the experts that their gates prefer, and gathered again.",
    naive=("n", "c"),
    small={"tokens": 24, "width": 8, "hidden": 12, "experts": 4, "capacity": 5},
    data=normal,
    make=experts.graph,
    peers={"capacity": 320},
)
NBODY = Problem(
    "nbody",
    "n-body",
    "Gravity between all pairs, and a leapfrog step.",
    naive=("j",),
    small={"i": 37},
    data=bodies,
)
ISING = Problem(
    "ising",
    "Ising",
    "The partition function of a lattice of spins, by transfer matrices.",
    naive=("a", "x"),
    small={"block": 1, "columns": 4},
    data=critical,
    make=ising.graph,
    peers={"columns": 8},
)
KALMAN = Problem(
    "kalman",
    "Kalman",
    "A step of 100,000 filters: predict, then update.",
    naive=("i", "a"),
    small={"n": 20},
    data=tracks,
)
GNN = Problem(
    "gnn",
    "Graph neural network",
    "Two layers of graph convolution over a list of edges.",
    naive=("n", "e"),
    small={"n": 20, "a": 8, "e": 60, "h": 8, "o": 4},
    data=citations,
)
PROBLEMS = (
    ATTENTION, KMEANS, SHORTEST_PATHS, VITERBI, MTTKRP, EXPERTS, NBODY, ISING, KALMAN, GNN
)  # fmt: skip
