"""Table 4, continued: training a classifier whose state is larger than the limit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from peers.of_experiments import torch_alone
from peers.race import race

from eindecomp.engines.engine import find_engine
from eindecomp.experiments.paper import Training, curves_of
from eindecomp.experiments.record import OURS
from eindecomp.models.paper_graphs import ffnn
from eindecomp.planner.costs.byte_sizes import parse_bytes
from on_gpu.larger import TABLE
from on_gpu.record import Measured, Memory
from on_gpu.setting import best_of, floor, noted
from on_gpu.speeds import link_speeds

if TYPE_CHECKING:
    from on_gpu.setting import Setting

_OPTIMIZER = "adam"
_STEPS = 6
_TORCH = "torch, all on the device"


def training(setting: Setting) -> Measured:
    """Steps of Adam under a limit, against torch, which holds everything on the GPU."""
    sizes = setting.sizes.training
    graph = ffnn(**sizes.shape, optimizer=_OPTIMIZER)
    device = str(setting.device)
    engine = find_engine("torch", {"device": device, "gpu_memory": sizes.limit})
    setting.say("training: drawing the parameters")
    steps = Training(graph, _OPTIMIZER, sizes.shape, engine, sizes.parts)
    state = sum(array.nbytes for array in steps.state.values())
    shape = " × ".join(map(str, sizes.shape.values()))
    case = f"training, {state / 1e9:.3g} GB of state"
    name = f"{OURS}, {sizes.limit}"
    before = setting.taken()
    with steps.ours({name: None}) as ours:
        setting.say(f"{case}: taking turns")
        rows = race(case, ours, {_TORCH: partial(torch_alone, steps, _TORCH, device)}, _STEPS)
        setting.taken()
        ours[0].way()  # torch is gone: what is taken now is ours
        after = setting.taken()
        schedule = steps.executables[name].schedule
    known: dict[str, Any] = {}
    if setting.on_gpu:
        known["predicted"] = None if schedule is None else schedule.seconds
        peak, reserved = after.most - before.now, after.most_reserved - before.reserved
        known["memory"] = Memory(parse_bytes(sizes.limit), peak, reserved)
    to_gpu, to_host = link_speeds(setting.device)
    compute = best_of(rows, _TORCH)
    seconds = max(compute, state / to_gpu, state / to_host)
    rows.append(floor(case, "floor: torch, or state over the link", seconds, rows))
    curves = curves_of(steps.losses, steps.losses[name])
    note = f"{case}: {shape} (batch, features, hidden units, classes), {_OPTIMIZER}."
    return Measured(tuple(noted(rows, TABLE, {name: known})), tuple(curves), notes=(note,))
