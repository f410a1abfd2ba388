"""What all tables share: where they run, our runs, and how rows come about."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from eindecomp.api.compile import compile as compile_plan
from eindecomp.experiments.measure import Contender
from eindecomp.experiments.record import OURS, Timed, Timing
from eindecomp.models.llama import prefill_graph
from eindecomp.models.llama.config import rotations
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.planner.make import plan as make_plan
from on_gpu.record import Memory, Row

if TYPE_CHECKING:
    from pathlib import Path

    from peers.ceiling import Ceiling
    from peers.race import Peer

    from eindecomp.engines.executable import Executable
    from eindecomp.engines.result import Result
    from eindecomp.experiments.measure import Way
    from eindecomp.models.llama.config import Config
    from eindecomp.planner.plan import Plan
    from on_gpu.sizes import Prompt, Sizes
    from on_gpu.weight_block import WeightBlock

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """The device, the sizes, and what was given on the command line."""

    device: torch.device
    sizes: Sizes
    say: Callable[[str], None]
    folder: Path
    """Where the trace goes."""
    ceiling: Ceiling | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether it is a GPU that is measured."""
        return self.device.type == "cuda"

    def ids(self, config: Config, prompt: Prompt) -> torch.Tensor:
        """Random tokens on the device."""
        drawn = np.random.default_rng(0).integers(
            0, config.vocabulary, (prompt.batch, prompt.tokens)
        )
        return torch.from_numpy(drawn).to(self.device)

    def finished(self, way: Way) -> Way:
        """A way that ends when the device has ended; its result is copied to the host later."""

        def run() -> object:
            result: Any = way()
            if self.on_gpu:
                torch.cuda.synchronize(self.device)
            return OnDevice(result)

        return run

    def peer(self, peer: Peer) -> Peer:
        """A peer whose ways end when the device has."""

        @contextmanager
        def made() -> Generator[Way]:
            with peer() as way:
                yield self.finished(way)

        return made

    def taken(self) -> Taken:
        """What tensors take of the GPU, and the most since this was last asked."""
        if not self.on_gpu:
            return Taken(0, 0, 0, 0)
        most = torch.cuda.max_memory_allocated(self.device)
        most_reserved = torch.cuda.max_memory_reserved(self.device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        return Taken(
            torch.cuda.memory_allocated(self.device),
            torch.cuda.memory_reserved(self.device),
            most,
            most_reserved,
        )


class Taken(NamedTuple):
    """Bytes of a GPU: now and at most, by tensors and by torch for them."""

    now: int
    reserved: int
    most: int
    most_reserved: int


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A tensor that NumPy reads when it asks for it, which is after the clock was read."""

    tensor: torch.Tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.tensor.detach().cpu().double().numpy().astype(dtype or np.float64)


@contextmanager
def prefill(
    setting: Setting,
    weights: WeightBlock,
    prompt: Prompt,
    limit: str | None = None,
    cut: int = 1,
) -> Generator[OurPrefill]:
    """Our prefill of a prompt; under a limit, weights stay in the host's memory."""
    graph = prefill_graph(weights.config, prompt.batch, prompt.tokens, keep=False)
    plan = make_plan(graph, cut, strategy=["b"] if cut > 1 else None)
    options = {} if limit is None else {"gpu_memory": limit}
    before = setting.taken()
    with compile_plan(plan, "torch", device=str(setting.device), **options) as executable:
        inputs = executable.place({**weights.by_input, **prompt_inputs(weights.config, prompt)})
        yield OurPrefill(setting, plan, executable, inputs, before, limit)


def prompt_inputs(config: Config, prompt: Prompt) -> dict[str, Array]:
    """The inputs of a prefill beside the weights; the tokens are those of `Setting.ids`."""
    shape = prompt.batch, prompt.tokens
    drawn = np.random.default_rng(0).integers(0, config.vocabulary, shape)
    places = np.broadcast_to(np.arange(prompt.tokens), shape)
    last = np.full(prompt.batch, prompt.tokens - 1, np.int32)
    return {"ids": drawn.astype(np.int32), "R": rotations(config, places), "last": last}


@dataclass(frozen=True, slots=True)
class OurPrefill:
    """An executable with all of its inputs placed."""

    setting: Setting
    plan: Plan
    executable: Executable
    inputs: dict[str, Any]
    before: Taken
    """What others had taken before this was made."""
    limit: str | None = None

    def run(self) -> Result:
        """One run."""
        return self.executable(self.inputs)

    def contender(self, name: str = OURS) -> Contender:
        """Ours, as one that takes turns."""
        way = self.setting.finished(lambda: self.run().tensor("logits").array())
        return Contender(name, "ours", way, self.plan)

    def alone(self) -> dict[str, Any]:
        """What a run takes while nobody else does anything: the fields of `Timed` that say so."""
        if self.limit is None:
            return {}
        self.run()  # measures, compiles and makes the schedule
        self.setting.taken()
        stats = self.run().stats
        after = self.setting.taken()
        peak, reserved = stats.peak_memory - self.before.now, stats.peak_memory
        if self.setting.on_gpu:
            reserved = after.most_reserved - self.before.reserved
        memory = Memory(parse_bytes(self.limit), peak, reserved)
        return {"predicted": stats.predicted, "memory": memory}


def noted(rows: list[Timed], table: str, known: dict[str, dict[str, Any]]) -> list[Row]:
    """Rows of a table, with what is known of contenders beside their times."""
    return [
        Row(**{each.name: getattr(row, each.name) for each in fields(row)}, table=table,
            **known.get(row.name, {}))
        for row in rows
    ]  # fmt: skip


def floor(case: str, name: str, seconds: float, rows: list[Timed]) -> Timed:
    """A row for a time that was computed or measured elsewhere; ours is the first row."""
    return Timed(
        case, name, "floor", None, Timing(seconds, seconds, 1.0, 0), seconds / best_of(rows)
    )


def beyond(
    setting: Setting, kind: str, case: str, prompt: Prompt, rows: list[Timed]
) -> list[Timed]:
    """The row of the program of `--ceiling`, which ran before and on its own."""
    if setting.ceiling is None:
        told = "no program was given by --ceiling"
        return [Timed(case, "program of --ceiling", "peer", absent=told)]
    name = f"{setting.ceiling.program}, on its own"
    seconds = getattr(setting.ceiling, kind).get(str(prompt))
    if seconds is None:
        told = setting.ceiling.failure or "it printed no time of this prompt"
        return [Timed(case, name, "peer", absent=told)]
    return [replace(floor(case, name, seconds, rows), kind="peer")]


def best_of(rows: list[Timed], name: str | None = None) -> float:
    """The best seconds of a contender, by default of ours, which is the first."""
    found = rows[0] if name is None else next(row for row in rows if row.name == name)
    if found.timing is None:
        raise ValueError(f"{found.name} was not measured: {found.absent}")
    return found.timing.best
