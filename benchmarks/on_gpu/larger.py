"""Table 4: models whose weights are several times as large as what may be taken of the GPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from peers import by_hand
from peers.race import race

from eindecomp.experiments.record import OURS
from on_gpu.record import Measured
from on_gpu.setting import floor, noted, prefill
from on_gpu.speeds import link_speeds

if TYPE_CHECKING:
    from on_gpu.setting import Setting
    from on_gpu.sizes import Prompt
    from on_gpu.weight_block import WeightBlock

TABLE = "Larger models"
_REPEATS = 3


def larger(setting: Setting, host: WeightBlock, prompt: Prompt) -> Measured:
    """Ours under a limit, against plain torch by hand, which takes what it needs."""
    sizes = setting.sizes
    held = host.memory.nbytes / 1e9
    case = f"{sizes.larger_name}, {held:.3g} GB on the host, {prompt}"
    ids = setting.ids(host.config, prompt)
    peer = setting.peer(partial(by_hand.streamed, host, ids))
    name = f"{OURS}, {sizes.larger_limit}"
    with prefill(setting, host, prompt, sizes.larger_limit) as ours:
        known = {name: ours.alone()}
        contender = ours.contender(name)
        rows = race(case, [contender], {"by hand": peer}, _REPEATS, compare_rows=True)
    seconds = host.read_bytes / link_speeds(setting.device)[0]
    rows.append(floor(case, "floor: all weights over the link", seconds, rows))
    told = f"{case}: accelerate is not measured, as the host has no room for the weights twice."
    note = (told,) if setting.on_gpu else ()
    return Measured(tuple(noted(rows, TABLE, known)), notes=note)
