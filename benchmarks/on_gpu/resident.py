"""Table 1: prompts are read with all weights in the GPU's memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from peers import by_hand, transformers
from peers.race import race

from on_gpu.record import Measured
from on_gpu.setting import beyond, noted, prefill

if TYPE_CHECKING:
    from on_gpu.setting import Setting
    from on_gpu.sizes import Prompt
    from on_gpu.weight_block import WeightBlock

TABLE = "Weights in the GPU's memory"


def resident(setting: Setting, host: WeightBlock, prompt: Prompt) -> Measured:
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
    return Measured(tuple(noted(rows, TABLE, {})))
