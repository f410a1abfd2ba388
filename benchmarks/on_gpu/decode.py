"""Table 2: one token more of one sequence, with its keys and values and all weights on the GPU."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from peers import transformers
from peers.race import race

from eindecomp.api.compile import compile as compile_plan
from eindecomp.experiments.measure import Contender, Lapse
from eindecomp.experiments.record import OURS
from eindecomp.kernels.torch.timing import seconds_of
from eindecomp.models.llama import prefill_graph, step_graph
from eindecomp.models.llama.config import rotations
from eindecomp.models.llama.graph import LATEST
from eindecomp.planner.make import plan as make_plan
from on_gpu.record import Measured
from on_gpu.setting import floor, noted, prompt_inputs
from on_gpu.sizes import Prompt
from on_gpu.speeds import memory_speed

if TYPE_CHECKING:
    from collections.abc import Generator

    from peers.race import Peer

    from eindecomp.engines.executable import Executable
    from eindecomp.engines.tensor import Tensor
    from eindecomp.experiments.measure import Way
    from on_gpu.setting import Setting
    from on_gpu.weight_block import WeightBlock

TABLE = "Decode: one token more"
_WARM = 4
"""Steps before anything is measured: ours is captured as a graph of kernels in the third."""
_TOKENS = 10
"""What is read in a turn, one after another, as decoding does; what is told is the time of one."""
_TURNS = 5


def decode(setting: Setting, host: WeightBlock) -> Measured:
    """Ours against transformers with a static cache, and against reading the weights once."""
    config, cached = host.config, setting.sizes.cached
    case = f"one sequence after {cached} tokens"
    own = host.copy(setting.device)
    ids = setting.ids(config, Prompt(1, cached))
    most = (LATEST - _WARM) // _TOKENS - 1
    repeats = min(_TURNS if setting.on_gpu else setting.sizes.repeats, most)
    peer = setting.peer(
        partial(transformers.steps_on_device, config, own.by_file_name, ids, cached + LATEST, _WARM)
    )
    with ExitStack() as stack:
        graph = step_graph(config, 1, cached)
        plan = make_plan(graph, 1)
        device = str(setting.device)
        executable = stack.enter_context(compile_plan(plan, "torch", device=device))
        given = {**host.by_input, **_read(setting, host, executable)}
        call = executable.bind({name: x for name, x in given.items() if name not in plan.tie})
        state = call.place({name: given[name] for name in plan.tie})
        way = _Steps(setting, host, call, state).take
        for _ in range(_WARM):
            way()
        rows = race(
            case,
            [Contender(OURS, "ours", _in_a_row(setting.finished(way)), plan)],
            {"transformers, static cache, torch.compile": partial(_peer_in_a_row, peer)},
            repeats,
            compare_rows=True,
        )
        kernels = _kernels(setting, call)
    if kernels is not None:
        rows.append(floor(case, "floor: ours, the graph of kernels alone", kernels, rows))
    seconds = host.read_bytes / memory_speed(setting.device)
    rows.append(floor(case, "floor: reading all weights once", seconds, rows))
    return Measured(tuple(noted(rows, TABLE, {})))


def _kernels(setting: Setting, call: Any) -> float | None:
    """The least seconds of a step's kernels, launched with nothing around them; None if unknown."""
    capture = call._prepared.runner.capture
    if capture is None:
        return None
    return min(seconds_of(capture.graph.replay, setting.device) for _ in range(_TURNS))


def _in_a_row(way: Way) -> Way:
    """Several tokens, and the seconds of one of them."""

    def read() -> Lapse:
        start, result = perf_counter(), None
        for _ in range(_TOKENS):
            result = way()
        return Lapse((perf_counter() - start) / _TOKENS, result)

    return read


@contextmanager
def _peer_in_a_row(peer: Peer) -> Generator[Way]:
    with peer() as way:
        yield _in_a_row(way)


def _read(setting: Setting, host: WeightBlock, executable: Executable) -> dict[str, Any]:
    """The keys and values of a prompt, and no latest ones yet."""
    config, prompt = host.config, Prompt(1, setting.sizes.cached)
    graph = prefill_graph(config, prompt.batch, prompt.tokens)
    with compile_plan(make_plan(graph, 1), "torch", device=str(setting.device)) as reading:
        inputs = reading.place({**host.by_input, **prompt_inputs(config, prompt)})
        result = reading(inputs)
    found: dict[str, Any] = {}
    for layer in range(config.layers):
        found[f"KC{layer}"], found[f"VC{layer}"] = (
            result.tensor(f"{name}{layer}").array().clone() for name in ("KR", "V")
        )
    for vertex in executable.plan.graph.inputs:
        if vertex.name in executable.plan.tie:
            found[vertex.name] = np.zeros(vertex.shape, vertex.dtype)
    return found


class _Steps:
    """Tokens that are read one by one, each of them 0."""

    def __init__(
        self,
        setting: Setting,
        host: WeightBlock,
        executable: Executable,
        state: dict[str, Tensor],
    ) -> None:
        self.config, self.cached, self.executable = host.config, setting.sizes.cached, executable
        self.state, self.done = state, 0
        places = range(self.cached, self.cached + LATEST)
        self.rotations = [rotations(self.config, np.array([[at]])) for at in places]

    def take(self) -> Any:
        """The logits after one more."""
        given = {
            "ids": np.zeros((1, 1), np.int32),
            "R": self.rotations[self.done],
            "length": np.array([self.cached], np.int32),
            "latest": np.int32(self.done),
        }
        result = self.executable({**self.state, **given}, donate=self.state)
        self.done += 1
        self.state = {name: result.tensors[new] for name, new in self.executable.plan.tie.items()}
        return result.tensor("logits").array()[:, -1]
