"""This process among the ranks of its job: joining them, and what they do together.

Outside of runs ranks agree on their plan, and write outputs to files, each its own block. Whoever
waits for another rank is watched there, too.
"""

from __future__ import annotations

import os
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from eindecomp.engines.ranks import agree, at_first, common_token, writers
from eindecomp.engines.spmd.watch import watch_of
from eindecomp.engines.tensor import as_numpy
from eindecomp.engines.whole_folder import beside, put_in_place, remove
from eindecomp.engines.write_outputs import can_write_at_once, create_file, write_block
from eindecomp.errors import InputError, needing_extras, not_installed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np

    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.spmd.protocols import RankArrays, Transport
    from eindecomp.engines.spmd.watch import Watch
    from eindecomp.engines.tensor import Tensor
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.program import Program

    Array = np.ndarray[Any, Any]

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
        from eindecomp.engines.spmd.torch_transport import TorchTransport

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
    from eindecomp.engines.spmd.torch_arrays import torch_arrays

    return torch_arrays(device, transport, ranks)


class WatchedRanks:
    """What ranks do together outside of runs."""

    def __init__(self, transport: Transport, watch: Watch) -> None:
        self._transport, self._watch = transport, watch

    @property
    def rank(self) -> int:
        """Which rank this process is."""
        return self._transport.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._transport.size

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        with self._watch.waiting("what rank 0 shares with all"):
            return self._transport.gather_bytes(own or b"")[0]

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        with self._watch.waiting("what all ranks have to say"):
            return self._transport.gather_bytes(own)

    def using_disk(self) -> AbstractContextManager[None]:
        """While this rank reads or writes files."""
        return self._watch.using_disk()

    def waiting_for_input(self) -> AbstractContextManager[None]:
        """While this rank waits for somebody to type, which takes as long as a disk may."""
        return self._watch.using_disk()

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """This rank's block, if it is the first rank that has it."""
        held: dict[Any, Any] = tensor.held()
        tiling = tensor.tilings[0]
        box = tiling.box(tensor.mesh, self.rank)
        if writers(tensor.mesh, tiling).get(box) != self.rank:
            return None
        return box, as_numpy(held[tiling])


# Agreeing


def check_same_plan(program: Program, transport: Transport, options: str = "") -> None:
    """Refuse a plan for another number of devices, and one that differs from rank to rank."""
    texts = [str(program.graph), repr((program.mesh, program.buffers, program.steps)), options]
    digests = [sha256(text.encode()).digest() for text in texts]
    own = program.devices.to_bytes(8, "little") + b"".join(digests)
    told = transport.gather_bytes(own)
    devices = [int.from_bytes(each[:8], "little") for each in told]
    _refuse(devices, transport, "a plan for another number of devices")
    if program.devices != transport.size:
        started = f"{transport.size} rank{'s' if transport.size > 1 else ''}"
        how = f"{_LAUNCHERS[transport.name]} {program.devices}"
        raise InputError(
            f"the plan is for {program.devices} devices, the job has {started}: start it with "
            f"{how}, or plan for {transport.size}"
        )
    for k, what in enumerate(("another graph", "another plan", "other options")):
        _refuse([each[8 + 32 * k : 40 + 32 * k] for each in told], transport, what)


_LAUNCHERS = {"mpi": "mpirun -n", "torch": "torchrun --nproc-per-node"}


def _refuse(told: list[int] | list[bytes], transport: Transport, what: str) -> None:
    other = next((rank for rank, each in enumerate(told) if each != told[0]), None)
    if other is not None:
        raise InputError(
            f"rank {other} was given {what} than rank 0 (this is rank {transport.rank}): plan on "
            "one rank and give its plan to all, as eindecomp run does"
        )


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
