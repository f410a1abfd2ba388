"""Table 1: prompts are read with all weights in the GPU's memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from eindecomp.experiments.gpu.setting import beyond, noted, prefill
from eindecomp.experiments.measure import race
from eindecomp.experiments.peers import by_hand, transformers
from eindecomp.experiments.record import Findings

if TYPE_CHECKING:
    from eindecomp.experiments.gpu.setting import Setting
    from eindecomp.experiments.gpu.sizes import Prompt
    from eindecomp.experiments.gpu.weight_block import WeightBlock

TABLE = "Weights in the GPU's memory"


def resident(setting: Setting, host: WeightBlock, prompt: Prompt) -> Findings:
    """One prompt: ours, transformers, and plain torch by hand."""
    config, ids = host.config, setting.ids(host.config, prompt)
    case = f"prefill of {prompt}"
    own = host.copy(setting.device)
    model = partial(transformers.on_device, config, own.by_file_name, ids)
    peers = {
        "transformers, SDPA": model,
        "transformers, SDPA, torch.compile": partial(model, compile_layers=True),
        "by hand": partial(by_hand.resident, own, ids),
    }
    with prefill(setting, host, prompt) as ours:
        rows = race(
            case,
            [ours.contender()],
            {name: setting.peer(peer) for name, peer in peers.items()},
            setting.sizes.repeats,
            compare_rows=True,
        )
    rows += beyond(setting, "resident", case, prompt, rows)
    return Findings(tuple(noted(rows, TABLE, {})), ())
