"""`bench gpu`: ours on one GPU against other systems and against what the card allows.

What needs torch is imported when it is called: torch is an extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eindecomp.engines.engine import find_engine
from eindecomp.errors import InputError
from eindecomp.experiments.peers.ceiling import check_program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.engines.engine import Engine
    from eindecomp.experiments.record import Findings


def gpu(
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
    *,
    engine: str | Engine = "torch",
    only: Sequence[str] = (),
    ceiling: Path | None = None,
    folder: Path = Path(),
    keep: Callable[[Findings, Findings], None] = lambda _found, _so_far: None,
) -> Findings:
    """Measure all tables, or `only` some: "decode", or one case of a table, "host/16x1024".

    `quick` takes tiny sizes, which the CPU can do. `ceiling` is a program that prints what it
    reaches on this card. `keep` gets what a case has found, and all so far.
    """
    runner: Any = find_engine(engine) if isinstance(engine, str) else engine
    if runner.name != "torch":
        raise InputError(f"bench gpu measures the engine 'torch', not {runner.name!r}")
    if ceiling is not None:
        check_program(ceiling)
    device = runner.torch_devices[0]
    if not quick and device.type != "cuda":
        raise InputError(
            "bench gpu needs a GPU, and torch finds none: --quick tries all of it on the CPU"
        )
    from eindecomp.experiments.gpu.tables import measure_tables, selected

    chosen = selected(only, quick)
    return measure_tables(device, quick, chosen, say, folder, ceiling, keep)


def describe_device(engine: Engine) -> str | None:
    """The first device of an engine in words, if it is one of torch's."""
    device: Any = next(iter(getattr(engine, "torch_devices", ())), None)
    if device is None or device.type != "cuda":
        return None if device is None else str(device)
    from eindecomp.experiments.gpu.speeds import card

    return f"{device}, {card(device)}"
