"""This process among the ranks of its job: joining them, and what they do together.

Outside of runs ranks agree on their plan, and write outputs to files, each its own block. Whoever
waits for another rank is watched there, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eindecomp.engines.array_files import can_write_at_once, create_file, write_block
from eindecomp.engines.engine import Ranks, agree, at_first, common_token
from eindecomp.engines.result import reason
from eindecomp.engines.spmd.exchange import RankArrays, Transport
from eindecomp.engines.spmd.watch import NOWHERE, Watch, watch_of
from eindecomp.engines.tensor import Tensor, as_numpy
from eindecomp.engines.whole_files import beside, put_in_place, remove
from eindecomp.errors import EinDecompError, InputError, RunError, needing_extras, not_installed
from eindecomp.lang.dtypes import Array
from eindecomp.layout.boxes import Box, show_box, volume
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.device_row import DeviceRow
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter, kind_of, used_by

NAMES = ("mpi", "torch")


def connect(name: str = "auto") -> Transport:
    """The transport of a name, or by which this job was started; it is made once."""
    if name == "auto":
        name = _started_by()
    if name not in NAMES:
        raise InputError(f"transport is auto, {' or '.join(NAMES)}, not {name!r}")
    if name not in _CONNECTED:
        _CONNECTED[name] = _connect(name)
        # From now on others hear of this rank, also while it plans before it runs anything.
        watch_of(_CONNECTED[name])
    return _CONNECTED[name]


_CONNECTED: dict[str, Transport] = {}


def _connect(name: str) -> Transport:
    if name == "mpi":
        if find_spec("mpi4py") is None:
            raise InputError(f"{not_installed('mpi4py')}, and an MPI such as Open MPI")
        from eindecomp.engines.spmd.mpi import MpiTransport

        return MpiTransport()
    with needing_extras():
        from eindecomp.engines.spmd.torch_ranks import TorchTransport

    return TorchTransport()


def _started_by() -> str:
    """Which launcher started this process, as far as its environment tells."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return "torch"
    by_mpi = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
    if any(name in os.environ for name in by_mpi) or find_spec("mpi4py") is not None:
        return "mpi"
    return "torch"


def arrays_on(device: object, transport: Transport, ranks: Ranks) -> RankArrays:
    """The arrays of a rank on a device of torch's; without one, NumPy's. All ranks ask together."""
    if transport.name == "torch":
        with_device = ranks.gather_bytes(b"no" if device is None else b"yes")
        if len({*with_device}) > 1:
            some = ", ".join(str(rank) for rank, told in enumerate(with_device) if told == b"yes")
            raise InputError(f"device: it was given on rank {some}, but not on all ranks")
    elif device is not None:
        raise InputError(
            f"device={device!r} makes tiles torch's tensors, which travel by torch.distributed: "
            "start the job with torchrun, also one of a single rank"
        )
    if device is None:
        from eindecomp.engines.spmd.host_arrays import HostArrays

        return HostArrays(transport)
    from eindecomp.engines.spmd.torch_ranks import torch_arrays

    return torch_arrays(device, transport, ranks)


class WatchedRanks(Ranks):
    """The ranks of a job, which do something together outside of runs."""

    def __init__(self, transport: Transport, watch: Watch) -> None:
        super().__init__(transport.rank, transport.size)
        self._transport, self._watch = transport, watch

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        with self._watch.waiting("what all ranks have to say"):
            return self._transport.gather_bytes(own)

    def not_stuck(self) -> AbstractContextManager[None]:
        """While this rank computes nothing, and is not to be taken for stuck."""
        return self._watch.not_stuck()

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """This rank's block, if it is the first rank that has it."""
        held: dict[Any, Any] = tensor.held()
        tiling = tensor.tilings[0]
        box = tiling.box(tensor.mesh, self.rank)
        if writers(tensor.mesh, tiling).get(box) != self.rank:
            return None
        return box, as_numpy(held[tiling])


@lru_cache(maxsize=1 << 12)
def writers(mesh: Mesh, tiling: Tiling) -> dict[Box, int]:
    """The blocks of a layout, and for each the first device that has it."""
    first: dict[Box, int] = {}
    for device in range(mesh.devices):
        box = tiling.box(mesh, device)
        if volume(box):
            first.setdefault(box, device)
    return first


# Agreeing


def check_same_plan(program: Program, transport: Transport, options: str = "") -> None:
    """Refuse a plan for another number of devices, and one that differs from rank to rank."""
    facts = {
        "a plan for another number of devices": program.devices,
        "another graph": str(program.graph),
        "another plan": (program.mesh, program.buffers, program.steps),
        "other options": options,
    }
    digests = [sha256(repr(fact).encode()).digest() for fact in facts.values()]
    told = transport.gather_bytes(b"".join(digests))
    for what, start in zip(facts, range(0, len(told[0]), 32), strict=True):
        own = [each[start : start + 32] for each in told]
        other = next((rank for rank, each in enumerate(own) if each != own[0]), None)
        if other is not None:
            raise InputError(
                f"rank {other} was given {what} than rank 0 (this is rank {transport.rank}): plan "
                "on one rank and give its plan to all, as eindecomp run does"
            )
    if program.devices != transport.size:
        started = f"{transport.size} rank{'s' if transport.size > 1 else ''}"
        how = f"{_LAUNCHERS[transport.name]} {program.devices}"
        raise InputError(
            f"the plan is for {program.devices} devices, the job has {started}: start it with "
            f"{how}, or plan for {transport.size}"
        )


_LAUNCHERS = {"mpi": "mpirun -n", "torch": "torchrun --nproc-per-node"}


# Writing outputs


def write_outputs(ranks: Ranks, outputs: Mapping[str, Path], tensors: Mapping[str, Tensor]) -> None:
    """Write outputs; all ranks do so together. A file is there when all of it is."""
    for name, path in outputs.items():
        token = common_token(ranks)
        part = beside(path, token)
        try:
            _write(ranks, tensors[name], part, path.suffix)
            at_first(ranks, lambda part=part, path=path: put_in_place(part, path))
        except InputError as error:
            why = str(error).removeprefix(f"{part}: ")
            raise InputError(f"outputs: {name} cannot be written to {path}: {why}") from error
        finally:
            if ranks.rank == 0:
                remove(part)


def _write(ranks: Ranks, tensor: Tensor, part: Path, kind: str) -> None:
    boxes = list(writers(tensor.mesh, tensor.tilings[0]))
    at_first(ranks, lambda: create_file(part, kind, tensor.shape, tensor.dtype, boxes))
    own = ranks.own_block(tensor)

    def write() -> None:
        if own is not None:
            write_block(part, kind, *own)

    if can_write_at_once(part.with_suffix(kind), tensor.shape, boxes):
        agree(ranks, write)
        return
    for turn in range(ranks.size):  # tiles that share a chunk are written one after another
        agree(ranks, write if turn == ranks.rank else lambda: None)


# Naming steps


def in_words(program: Program, step: int) -> str:
    """A step as messages name it."""
    if not 0 <= step < len(program.steps):
        return "counting what all ranks took"
    each = program.steps[step]
    what = kind_of(each)
    match each:
        case Compute() | ReduceScatter() | AllGather():
            return f"{what} of {program.graph[each.vertex]}"
        case Move():
            source = program.buffers[each.source].tensor
            return f"{each.pattern} of {source} for {program.graph[each.vertex]}"
        case _:
            return f"{what} of {program.buffers[used_by(each)[-1]].tensor}"


def named(
    error: BaseException, step: int, program: Program, row: DeviceRow, transport: Transport
) -> BaseException:
    """What went wrong in a step, with its vertex, tile and rank."""
    if step == NOWHERE or isinstance(error, RunError):
        return error
    why = reason(error)
    tile = f", tile {show_box(row.steps[step].box)}" if step < len(row.steps) else ""
    gone = [] if isinstance(error, EinDecompError) else transport.lost()
    if gone:
        why += f"; rank {', '.join(map(str, gone))} is gone"
    return RunError(f"{in_words(program, step)}{tile} on rank {row.device}, step {step}: {why}")
