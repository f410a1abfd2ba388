"""Table 4, continued: weights in files, which the host's memory does not hold."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from peers import by_hand
from peers.race import race

from eindecomp.api.compile import compile as compile_plan
from eindecomp.engines.safetensors_file import write_tensors
from eindecomp.experiments.measure import Lapse
from eindecomp.experiments.record import OURS
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.models.llama import prefill_graph
from eindecomp.planner.make import plan as make_plan
from on_gpu.larger import TABLE
from on_gpu.record import Measured, Speed
from on_gpu.setting import OurPrefill, floor, noted, prompt_inputs
from on_gpu.speeds import link_speeds
from on_gpu.weight_block import WeightBlock

if TYPE_CHECKING:
    from peers.race import Peer

    from eindecomp.experiments.measure import Way
    from eindecomp.models.llama.config import Config
    from on_gpu.setting import Setting

_SHARE = 0.8  # of what is free on the disk


def on_disk(setting: Setting) -> Measured:
    """Ours under a limit, against plain torch by hand that reads files in a thread."""
    sizes, prompt = setting.sizes, setting.sizes.disk_prompt
    config = sizes.disk
    block = WeightBlock.random(replace(config, layers=1), setting.device)
    with TemporaryDirectory() as folder:
        files = write_layers(block, Path(folder), config.layers, sizes.disk_bytes)
        speed = disk_speed(files[0])
        nbytes = config.layers * block.layers[0].nbytes + block["H"].nbytes
        case = f"{sizes.disk_name}, {nbytes / 1e9:.3g} GB in files, {prompt}"
        name = f"{OURS}, {sizes.disk_limit}"
        peer = partial(by_hand.from_files, block, setting.ids(config, prompt), files)
        with _ours(setting, config, block, files) as ours:
            known = {name: ours.alone()}
            contender = ours.contender(name)
            contender = replace(contender, way=_uncached(files, contender.way))
            peers = {"by hand": _uncached_peer(files, setting.peer(peer))}
            rows = race(case, [contender], peers, 1, warm_up=False, compare_rows=True)
        distinct = sum(file.stat().st_size for file in set(files))
    seconds = max(distinct / speed, nbytes / link_speeds(setting.device)[0])
    rows.append(floor(case, "floor: each file once, or the link", seconds, rows))
    note = (
        f"{case}: {len(set(files))} distinct files of {distinct / 1e9:.3g} GB, each for "
        f"{config.layers / len(set(files)):.3g} layers on average. The system is asked to forget "
        "them before every run, but may serve a file from memory when it is read again in one."
    )
    told = Speed("reading a file that the system has forgotten", speed / 1e9, "GB/s")
    return Measured(tuple(noted(rows, TABLE, known)), speeds=(told,), notes=(note,))


def write_layers(block: WeightBlock, folder: Path, layers: int, nbytes: int) -> list[Path]:
    """The file of every layer; as many distinct ones as `nbytes` and the disk have room for."""
    own = TorchLibrary("cpu")
    parts = [name for name in block.tensors if name.endswith("0")]
    # Safetensors sorts by name: with a number in front, a layer lies as it does in memory.
    arrays = {
        f"{k}.{_kind(name)}": own.to_numpy(block.by_input[name]) for k, name in enumerate(parts)
    }
    size = block.layers[0].nbytes
    room = min(nbytes, int(_SHARE * shutil.disk_usage(folder).free))
    paths = [folder / f"layer{k}.safetensors" for k in range(max(1, min(layers, room // size)))]
    for path in paths:
        write_tensors(path, arrays, {})
    return [paths[layer % len(paths)] for layer in range(layers)]


def _kind(name: str) -> str:
    return name.rstrip("0")


@contextmanager
def _ours(
    setting: Setting, config: Config, block: WeightBlock, files: list[Path]
) -> Generator[OurPrefill]:
    """The tables are in memory, and all layers are given by the paths of their files."""
    prompt, limit = setting.sizes.disk_prompt, setting.sizes.disk_limit
    plan = make_plan(prefill_graph(config, prompt.batch, prompt.tokens, keep=False), 1)
    given: dict[str, Any] = {name: block.by_input[name] for name in "EHN"}
    kinds = [_kind(name) for name in block.tensors if name.endswith("0")]
    for layer, file in enumerate(files):
        given |= {f"{kind}{layer}": f"{file}#{k}.{kind}" for k, kind in enumerate(kinds)}
    before = setting.taken()
    # As many distinct files as there are would fit in the host's memory: it is to keep none.
    options = {"device": str(setting.device), "gpu_memory": limit, "host_memory": 0}
    with compile_plan(plan, "torch", **options) as executable:
        inputs = executable.place({**given, **prompt_inputs(config, prompt)})
        yield OurPrefill(setting, plan, executable, inputs, before, limit)


def _uncached(files: list[Path], way: Way) -> Way:
    """A way that begins with no file in the system's memory."""

    def run() -> Lapse:
        forget(files)
        start = perf_counter()
        result = way()
        return Lapse(perf_counter() - start, result)

    return run


def _uncached_peer(files: list[Path], peer: Peer) -> Peer:
    @contextmanager
    def made() -> Generator[Way]:
        with peer() as way:
            yield _uncached(files, way)

    return made


def forget(files: list[Path]) -> None:
    """Ask the system to drop what it keeps of files."""
    for file in set(files):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_speed(file: Path) -> float:
    """Bytes per second at which a file that the system has forgotten is read."""
    forget([file])
    room = bytearray(32 << 20)
    start, read = perf_counter(), 0
    with file.open("rb", buffering=0) as opened:
        while count := opened.readinto(room):
            read += count
    return read / (perf_counter() - start)
