"""Ranks make sure that they were given the same plan: otherwise they would wait for each other."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from eindecomp.engines.spmd.transport import Transport
    from eindecomp.tra.program.program import Program


def check_same_plan(program: Program, transport: Transport, options: str = "") -> None:
    """Refuse a plan for another number of devices, and one that differs from rank to rank."""
    texts = [str(program.graph), repr((program.mesh, program.buffers, program.steps)), options]
    digests = [sha256(text.encode()).digest() for text in texts]
    own = program.devices.to_bytes(8, "little") + b"".join(digests)
    found = transport.gather_bytes(own)
    devices = [int.from_bytes(each[:8], "little") for each in found]
    _refuse(devices, transport, "a plan for another number of devices")
    if program.devices != transport.size:
        started = f"{transport.size} rank{'s' if transport.size > 1 else ''}"
        how = f"{_LAUNCHERS[transport.name]} {program.devices}"
        raise InputError(
            f"the plan is for {program.devices} devices, the job has {started}: start it with "
            f"{how}, or plan for {transport.size}"
        )
    for k, what in enumerate(("another graph", "another plan", "other options")):
        _refuse([each[8 + 32 * k : 40 + 32 * k] for each in found], transport, what)


_LAUNCHERS = {"mpi": "mpirun -n", "torch": "torchrun --nproc-per-node"}


def _refuse(found: list[int] | list[bytes], transport: Transport, what: str) -> None:
    other = next((rank for rank, each in enumerate(found) if each != found[0]), None)
    if other is not None:
        raise InputError(
            f"rank {other} was given {what} than rank 0 (this is rank {transport.rank}): plan on "
            "one rank and give its plan to all, as eindecomp run does"
        )
