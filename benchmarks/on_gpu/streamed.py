"""Table 3: weights in the host's memory, and a limit on what may be taken of the GPU."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from peers import by_hand, offload
from peers.race import failure, race

from eindecomp.errors import EinDecompError
from eindecomp.experiments.record import OURS, Timed
from eindecomp.planner.costs.byte_sizes import parse_bytes
from on_gpu.record import Measured
from on_gpu.setting import best_of, beyond, floor, noted, prefill
from on_gpu.speeds import link_speeds
from on_gpu.trace import write_trace

if TYPE_CHECKING:
    from peers.race import Peer

    from on_gpu.setting import OurPrefill, Setting
    from on_gpu.sizes import Limited, Prompt
    from on_gpu.weight_block import WeightBlock

TABLE = "Weights in the host's memory"
_PARTS = 4
"""Into how many parts a batch is cut under the smaller limit."""
COMPUTE = "by hand, weights on the GPU"


def stream(setting: Setting, host: WeightBlock, given: Limited, *, trace: bool) -> Measured:
    """Ours under two limits, accelerate, DeepSpeed, and plain torch by hand."""
    prompt, case = given.prompt, f"prefill of {given.prompt}"
    known: dict[str, dict[str, Any]] = {}
    notes: tuple[str, ...] = ()
    with ExitStack() as stack:
        ours: dict[str, OurPrefill] = {}
        refused: list[Timed] = []
        for name, (limit, parts) in _limits(given).items():
            setting.say(f"{case}: {name}")
            try:
                made = stack.enter_context(prefill(setting, host, prompt, limit, parts))
                known[name] = made.alone()
                ours[name] = made
            except EinDecompError as error:
                if not ours:
                    raise
                refused.append(Timed(case, name, "ours", absent=failure(error)))
        setting.say(f"{case}: taking turns")
        contenders = [made.contender(name) for name, made in ours.items()]
        peers = {name: setting.peer(peer) for name, peer in _peers(setting, host, prompt).items()}
        rows = race(case, contenders, peers, given.repeats, compare_rows=True)
        if trace:
            first = next(iter(ours.values()))
            notes = write_trace(setting, first.run, f"{case}, {given.limit}")
    rows += refused + floors(setting, host, case, given.limit, rows)
    rows += beyond(setting, "streamed", case, prompt, rows)
    return Measured(tuple(noted(rows, TABLE, known)), notes=notes)


def _limits(given: Limited) -> dict[str, tuple[str, int]]:
    """Our contenders: the limit of each, and into how many parts its batch is cut."""
    cut = _PARTS if given.prompt.batch % _PARTS == 0 else 1
    how = f", batch in {cut}" if cut > 1 else ""
    return {
        f"{OURS}, {given.limit}": (given.limit, 1),
        f"{OURS}, {given.half}{how}": (given.half, cut),
    }


def _peers(setting: Setting, host: WeightBlock, prompt: Prompt) -> dict[str, Peer]:
    config, ids = host.config, setting.ids(host.config, prompt)

    def from_host(peer: Any) -> Any:
        return peer(config, host.pageable.by_file_name, ids)

    return {
        "by hand": partial(by_hand.streamed, host, ids),
        COMPUTE: partial(by_hand.resident, host, ids),
        "accelerate cpu_offload": partial(from_host, offload.accelerate),
        "DeepSpeed ZeRO-Inference": partial(from_host, offload.deepspeed),
        "FlexGen": offload.flexgen,
    }


def floors(
    setting: Setting, host: WeightBlock, case: str, limit: str, rows: list[Timed]
) -> list[Timed]:
    """What no way of reading weights from the host can be faster than.

    The GPU computes as long as with all weights in its memory. What crosses the link is every
    weight, or only what the limit has no room for, as the rest may stay on the GPU between runs.
    """
    compute, (to_gpu, _) = best_of(rows, COMPUTE), link_speeds(setting.device)
    crossing = {
        "floor: compute, all weights over the link": host.read_bytes,
        "floor: compute, those beyond the limit": max(0, host.read_bytes - parse_bytes(limit)),
    }
    return [
        floor(case, name, max(compute, nbytes / to_gpu), rows) for name, nbytes in crossing.items()
    ]
