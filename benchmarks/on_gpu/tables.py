"""The tables, one case after another; what fails is noted, and the rest goes on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from peers.ceiling import run_ceiling
from peers.race import failure

from eindecomp.errors import InputError, suggest
from eindecomp.experiments.record import OURS
from on_gpu import joins, larger, resident, streamed
from on_gpu.decode import TABLE as DECODE
from on_gpu.decode import decode
from on_gpu.on_disk import on_disk
from on_gpu.record import Measured, Row
from on_gpu.setting import Setting
from on_gpu.sizes import FULL, QUICK
from on_gpu.speeds import measured_speeds
from on_gpu.training import training
from on_gpu.weight_block import WeightBlock

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from eindecomp.models.llama.config import Config
    from on_gpu.sizes import Sizes

_ON_CPU = (
    "This ran on the CPU, on tiny sizes, to try the command: none of these figures is a GPU's. "
    "What is called torch.compile is only traced here."
)
_BESIDE_CEILING = ("resident", "host")


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a table, and what measures it: in a setting, with a model's weights if any."""

    table: str
    name: str
    title: str
    work: Callable[..., Measured]
    config: Config | None = None

    @property
    def key(self) -> str:
        """As it is selected."""
        return f"{self.table}/{self.name}" if self.name else self.table


def cases_of(sizes: Sizes) -> Iterator[Case]:
    """All cases, in the order in which they are measured."""
    for prompt in sizes.resident:
        work = partial(resident.resident, prompt=prompt)
        yield Case("resident", str(prompt), resident.TABLE, work, sizes.model)
    yield Case("decode", "", DECODE, decode, sizes.model)
    traced = sizes.host[len(sizes.host) // 2]
    for given in sizes.host:
        work = partial(streamed.stream, given=given, trace=given is traced)
        yield Case("host", str(given.prompt), streamed.TABLE, work, sizes.model)
    for prompt in sizes.larger_prompts:
        work = partial(larger.larger, prompt=prompt)
        yield Case("larger", str(prompt), larger.TABLE, work, sizes.larger)
    yield Case("disk", "", larger.TABLE, on_disk)
    yield Case("training", "", larger.TABLE, training)
    for name in joins.GRAPHS:
        work = partial(joins.distances, name=name)
        yield Case("joins", name.replace(" ", "-"), joins.TABLE, work)


def selected(only: Sequence[str], quick: bool) -> list[Case]:
    """The cases of tables, or single ones, that were asked for; without any, all.

    >>> [case.key for case in selected(["host/16x1024", "decode"], quick=False)]
    ['decode', 'host/16x1024']
    """
    cases = list(cases_of(QUICK if quick else FULL))
    known = list(dict.fromkeys(name for case in cases for name in (case.table, case.key)))
    for name in only:
        if name not in known:
            raise InputError(f"--only: there is no table {name!r}{suggest(name, known)}")
    return [case for case in cases if not only or case.table in only or case.key in only]


def measure_tables(
    device: torch.device,
    quick: bool,
    cases: Sequence[Case],
    say: Callable[[str], None],
    folder: Path,
    ceiling: Path | None,
    keep: Callable[[Measured, Measured], None],
) -> Measured:
    """Measure cases one after another; `keep` gets what each has found, and all so far."""
    beside = any(case.table in _BESIDE_CEILING for case in cases)
    if ceiling is not None and beside:
        say(f"running {ceiling}")
    reached = run_ceiling(ceiling) if ceiling is not None and beside else None
    setting = Setting(device, QUICK if quick else FULL, say, folder, reached)
    notes = () if setting.on_gpu else (_ON_CPU,)
    found = Measured(speeds=measured_speeds(device), notes=notes)
    weights: WeightBlock | None = None
    for case in cases:
        if weights is not None and weights.config != case.config:
            weights = None  # a host has no room for two
            gc.collect()
        try:
            if weights is None and case.config is not None:
                say(f"{case.key}: drawing the weights")
                weights = WeightBlock.random(case.config, device)
            say(case.key)
            more = case.work(setting) if weights is None else case.work(setting, weights)
        except Exception as error:
            row = Row(case.key, OURS, "ours", absent=failure(error), table=case.title)
            more = Measured((row,))
        gc.collect()
        setting.taken()  # gives memory back that nobody uses
        found = found + more
        keep(more, found)
    return found
