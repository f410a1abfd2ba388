"""What a worker does: `run_task` carries out a task of a job.

Blocks come as arguments, and go as results.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from time import time
from typing import Any, NamedTuple

import numpy as np

from eindecomp.engines.device import Device, HeldBlock
from eindecomp.engines.ray.cluster import is_called_off, note_recovery, read_job
from eindecomp.engines.ray.tasks import Job, Key, RayTask, origin
from eindecomp.engines.ray.tensors import MappedArray, packed, unpacked
from eindecomp.engines.result import naming_tile
from eindecomp.engines.tensor import block_of
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.kernels.library import library_of
from eindecomp.lang.dtypes import Array
from eindecomp.layout.boxes import Box, volume
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import DeviceRow, DeviceStep
from eindecomp.tra.program.memory import is_view
from eindecomp.tra.program.program import Program

Block = tuple[Array, ...]

JOBS = 8  # that a worker remembers


class TaskOrder(NamedTuple):
    """Which task of which job is to be run; it travels as bytes, which costs Ray least."""

    job: str
    run: str
    number: int
    scalars: Mapping[str, Any]
    timed: bool
    """Whether anybody wants to know when what was computed."""


class TaskReport(NamedTuple):
    """What a task tells beside its results, as bytes too."""

    worker: str
    """The process that computed it."""
    moved: tuple[tuple[int, int], ...]
    """The bytes that were taken from other devices, by step."""
    times: tuple[tuple[int, int, float, float], ...]
    """For each step that computes something its number, the device, and when it began and ended,
    by the machine's clock."""


def run_task(order: bytes, *arrived: Any) -> tuple[Any, ...] | bytes:
    """Carry out a task of a job; its report, and the blocks that it passes on."""
    own: TaskOrder = pickle.loads(order)  # noqa: S301 - an argument of our driver's
    job = _job(own.job)
    task = job.tasks[own.number]
    note_recovery(own.run, str(own.number))
    if is_called_off(own.run):  # nobody wants its results
        return (b"", *[None] * len(task.gives)) if task.gives else b""
    given = dict(zip(task.given, arrived, strict=False))
    blocks = dict(zip(task.needs, arrived[len(task.given) :], strict=True))
    running = _Running(job.program, task, own.scalars, given, blocks)
    row = _row(own.job, task.device)
    with np.errstate(all="ignore"), one_thread_each():
        for number in range(task.start, task.stop):
            running.carry_out(number, row.steps[number])
    report = pickle.dumps(running.report(own.timed))
    if not task.gives:
        return report
    return report, *(packed(block) for block in running.given_away())


@lru_cache(maxsize=JOBS)
def _job(name: str) -> Job:
    return pickle.loads(read_job(name))  # noqa: S301 - what the driver of this job has stored


@lru_cache(maxsize=64 * JOBS)
def _row(job: str, device: int) -> DeviceRow:
    return _job(job).program.on(device)


@dataclass(frozen=True, slots=True)
class _Sender:
    """A device elsewhere, of which some blocks have arrived."""

    program: Program
    number: int
    blocks: Mapping[Key, Block]

    def read(self, buffer: int, box: Box) -> Block:
        """A block that was cut out for this task."""
        source = origin(self.program, buffer, self.number)
        return unpacked(self.blocks[self.number, source, box], self.program.buffers[source].types)

    def has(self, buffer: int, box: Box) -> bool:
        """Whether a block has arrived."""
        return (self.number, origin(self.program, buffer, self.number), box) in self.blocks


@dataclass
class _Running:
    """A task in progress."""

    program: Program
    task: RayTask
    scalars: Mapping[str, Any]
    given: Mapping[int, Any]
    """The blocks of inputs, or the files that they are in."""
    blocks: Mapping[Key, Block]
    results: dict[Key, Block] = field(default_factory=dict[Any, Any])
    moved: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    times: list[tuple[int, int, float, float]] = field(default_factory=list[Any])

    def __post_init__(self) -> None:
        library = library_of("numpy")
        self.device = Device(self.program, self.task.device, library, self.scalars)

    def carry_out(self, number: int, own: DeviceStep) -> None:
        """The device's part of a step."""
        before = self.device.received
        if isinstance(own.step, steps.Compute | steps.Generate | steps.ReduceScatter):
            begun = time()
            with naming_tile(self.program, own, self.device.number):
                self._on(own)
            self.times.append((number, self.device.number, begun, time()))
        else:
            self._on(own)
        if self.device.received > before:
            self.moved.append((number, self.device.received - before))

    def _on(self, own: DeviceStep) -> None:
        device, step = self.device, own.step
        match step:
            case steps.Load():
                pass  # when it is read
            case steps.Generate():
                device.generate(own)
            case steps.Compute():
                for read, box in zip(step.reads, own.reads, strict=True):
                    if read is not None and box is not None:
                        self._have(read.buffer, box)
                device.compute(own)
            case steps.Move():
                self._move(step, own)
            case steps.ReduceScatter():
                members = own.members if volume(own.box) else ()
                peers = (self._peer(member, step.source, own.box) for member in members)
                parts = (device.fetch(peer, step.source, own.box) for peer in peers)
                device.reduce(own, parts)
            case steps.AllGather():
                self._gather(step, own)
            case steps.Free():
                if step.buffer in device.buffers:
                    self._give_away(step.buffer)
                    device.free(step.buffer)

    def _gather(self, step: steps.AllGather, own: DeviceStep) -> None:
        pieces = own.exchange.receives
        if step.buffer not in self.device.buffers:  # another task has reduced its share
            self.device.allocate(step.buffer)
            pieces = (*own.exchange.kept, *pieces)
        for piece in pieces:
            peer = self._peer(piece.peer, step.buffer, piece.box)
            self.device.copy_block(step.buffer, peer, step.buffer, piece.box)

    def _move(self, step: steps.Move, own: DeviceStep) -> None:
        into = self.program.buffers[step.into]
        if is_view(self.program, into, self.device.number) and volume(own.box):
            return  # when it is read
        self.device.make_room(own)
        for piece in (*own.exchange.kept, *own.exchange.receives):
            peer = self._peer(piece.peer, step.source, piece.box)
            self.device.copy_block(step.into, peer, step.source, piece.box)

    def _peer(self, number: int, buffer: int, box: Box) -> Device | _Sender:
        """Who has a block: what has arrived of a device, or this one itself."""
        sender = _Sender(self.program, number, self.blocks)
        if number != self.device.number or sender.has(buffer, box):
            return sender
        self._have(buffer, box)
        return self.device

    def _have(self, number: int, box: Box) -> None:
        """See to it that the device holds a buffer of which it reads a block."""
        device, buffer = self.device, self.program.buffers[number]
        held = device.buffers.get(number)
        if held is not None and (held.arrays or not volume(box)):
            return
        own = buffer.box(self.program.mesh, device.number)
        arrays: Block = ()  # of which nothing can be read
        if volume(box) and is_view(self.program, buffer, device.number):
            assert buffer.alias_of is not None  # noqa: S101 - views are views of something
            self._have(buffer.alias_of, own)
            arrays = device.read(buffer.alias_of, own)
        elif volume(box):
            is_given = buffer.role is steps.Role.GIVEN
            block = self.given[number] if is_given else self.blocks[device.number, number, own]
            is_file = isinstance(block, MappedArray)
            arrays = (block_of(block.open(), own),) if is_file else unpacked(block, buffer.types)
        device.hold(number, HeldBlock(own, arrays, 0))

    # What it passes on

    def given_away(self) -> list[Block]:
        """The blocks that are passed on, in order."""
        for _, buffer, _ in self.task.gives:
            self._give_away(buffer)
        return [self.results[key] for key in self.task.gives]

    def _give_away(self, number: int) -> None:
        """Take out what is passed on of a buffer, as views of its arrays."""
        for key in self.task.gives:
            if key[1] == number and key not in self.results:
                self._have(number, key[2])
                self.results[key] = self.device.read(number, key[2])

    def report(self, timed: bool) -> TaskReport:
        """What was moved, and when what was computed."""
        return TaskReport(_worker(), tuple(self.moved), tuple(self.times) if timed else ())


@cache
def _worker() -> str:
    return f"{os.uname().nodename}:{os.getpid()}"
