"""What stays on the devices: a model's weights, and the keys and values of tokens read so far.

Weights are placed once in each layout that plans want them in. Keys and values are mostly stored by
position. Those of the latest tokens are few, lie apart, and are what a step leaves for the next
one: its graph ties them. Once there are `LATEST` of them they are stored with the others, on the
devices as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.api.compile import engine_of
from eindecomp.engines.engine import Engine
from eindecomp.engines.executable import Executable
from eindecomp.engines.result import Result
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError, check_whole
from eindecomp.lang.dtypes import Array
from eindecomp.models.llama.config import DTYPES, Config
from eindecomp.models.llama.graph import LATEST
from eindecomp.planner.plan import Plan

_LEAST = 64


def bucket(tokens: int) -> int:
    """The cache size used for that many tokens: few sizes, so that few plans are made.

    >>> [bucket(n) for n in (1, 64, 65, 1000, 1025)]
    [64, 64, 128, 1024, 1536]
    """
    if tokens <= 1024:
        return max(_LEAST, 1 << (int(tokens) - 1).bit_length())
    return -(-tokens // 512) * 512


def padded(tokens: int) -> int:
    """The length to which a prompt is padded: few lengths, so that few plans are made."""
    step = 8 if tokens <= 64 else 32
    return -(-tokens // step) * step


class Cache:
    """Keys and values by layer, [sequence, head, position, …], and the sequence lengths.

    Args:
        config: The model's, such as `CONFIGS["7B"]`.
        batch: The number of sequences, such as `1`.
        tokens: How many of each there is room for at first, such as `100`.

    Examples:
        >>> from eindecomp.models.llama.config import CONFIGS
        >>> Cache(CONFIGS["7B"], 1, 100)
        <Cache of 1 sequences, 0 tokens, room for 128>
    """

    def __init__(self, config: Config, batch: int, tokens: int) -> None:
        check_whole(batch=batch)
        check_whole(0, tokens=tokens)
        self.config = config
        self.lengths = np.zeros(batch, np.int32)
        self.room = bucket(max(int(tokens), 1))
        """The number of tokens of a sequence that fit before the latest without growing."""
        self.latest = 0
        """How many of the tokens lie apart, the same number in every sequence."""
        self.stored: Mapping[str, Tensor] = {}
        half, dtype = config.head_size // 2, DTYPES[config.dtype]
        # Zeros for the latest keys and values: they are masked, and must be finite for that.
        key = np.zeros((batch, config.kv_heads, LATEST, 2, half), dtype)
        value = np.zeros((batch, config.kv_heads, LATEST, config.head_size), dtype)
        self.tied: Mapping[str, Array | Tensor] = {
            f"{name}{k}": zeros
            for k in range(config.layers)
            for name, zeros in (("KL", key), ("VL", value))
        }

    def __repr__(self) -> str:
        tokens = ", ".join(map(str, self.lengths.tolist()))
        return f"<Cache of {self.batch} sequences, {tokens} tokens, room for {self.room}>"

    @property
    def batch(self) -> int:
        """The number of sequences."""
        return len(self.lengths)

    @property
    def is_full(self) -> bool:
        """Whether the latest tokens must be stored before another one is read."""
        return self.latest == LATEST

    def prompt(self, result: Result) -> dict[str, Tensor]:
        """The keys and values computed for a prompt, as the inputs that store them.

        Args:
            result: That of a prefill, with `result.tensor("KR0")`.
        """
        pairs = (("KC", "KR"), ("VC", "V"))
        layers = range(self.config.layers)
        return {f"{to}{k}": result.tensor(f"{of}{k}") for k in layers for to, of in pairs}

    def places(self, lengths: Array, cached: int, latest: int) -> Array:
        """For each place, where its contents lie before storing, as `store_graph` takes it.

        Args:
            lengths: The tokens of each sequence that are stored, such as `np.array([12])`.
            cached: The places before the latest, such as `64`.
            latest: The tokens that lie apart, such as `3`.
        """
        self.room = bucket(max(self.room, int(lengths.max()) + latest))
        place, old = np.arange(self.room, dtype=np.int32)[None], lengths[:, None]
        new = place - old
        # Beyond the length any finite number will do.
        return np.where(new < 0, place, np.where(new < latest, cached + new, 0)).astype(np.int32)

    def store(self, result: Result, lengths: Array) -> None:
        """Take over the stored keys and values: no token lies apart any more.

        Args:
            result: That of storing, with `result.tensor("new_KC0")`.
            lengths: The tokens of each sequence now, such as `np.array([15])`.
        """
        names = [f"{name}{k}" for k in range(self.config.layers) for name in ("KC", "VC")]
        self.stored = {name: result.tensor(f"new_{name}") for name in names}
        self.lengths, self.latest = lengths.astype(np.int32), 0

    def step(self, plan: Plan, result: Result) -> None:
        """Take over what a step has left.

        Args:
            plan: The plan of the step, with `plan.tie`.
            result: That of the step, with `result.tensor("new_KL0")`.
        """
        self.tied = {name: result.tensor(new) for name, new in plan.tie.items()}
        self.lengths = self.lengths + np.int32(1)
        self.latest += 1


class PlacedWeights:
    """Runs plans that read the same weights, which are placed once in each layout."""

    def __init__(
        self, weights: Mapping[str, Any], engine: str | Engine, options: Mapping[str, Any] | None
    ) -> None:
        self.engine = engine_of(engine, options)
        self._latest: Mapping[str, Any] = weights
        self._tensors: dict[tuple[object, ...], Tensor] = {}
        self._executables: dict[int, tuple[Executable, Executable]] = {}
        """For each plan its executable, and the same with the weights bound."""
        self._closed = False

    def run(self, plan: Plan, inputs: Mapping[str, object]) -> Result:
        """Run a plan on its other inputs."""
        return self._ready(plan)[1](inputs)

    def place(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Bring other inputs of a plan into its layouts, to be read again and again."""
        return self._ready(plan)[0].place(tensors)

    def _ready(self, plan: Plan) -> tuple[Executable, Executable]:
        if self._closed:
            raise InputError("this model was closed")
        if id(plan) not in self._executables:
            executable = compile_plan(plan, self.engine)
            self._executables[id(plan)] = executable, executable.bind(self._place(executable))
        return self._executables[id(plan)]

    def _place(self, executable: Executable) -> dict[str, Tensor]:
        """The weights in a plan's layouts, shared with earlier plans that want the same."""
        if not any(vertex.name in self._latest for vertex in executable.plan.graph.inputs):
            return {}  # it stores keys and values
        placed = executable.place(self._latest)
        for name, tensor in placed.items():
            known = self._tensors.setdefault((name, tensor.mesh, tensor.tilings), tensor)
            if known.data is not tensor.data:
                placed[name] = known
        self._latest = placed
        return placed

    def close(self) -> None:
        """Close the executables and free the weights."""
        self._closed = True
        for executable, bound in self._executables.values():
            bound.close()
            executable.close()
        for tensor in self._tensors.values():
            tensor.release()
        self._executables.clear()
        self._tensors.clear()
        self._latest = {}
