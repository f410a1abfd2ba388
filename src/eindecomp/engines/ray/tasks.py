"""The tasks of a program: for each device rows of consecutive steps, and what they pass on.

A task ends where its device needs something that others make meanwhile, or when it is long enough.
What it passes on are blocks, by device and buffer: whole ones to later tasks of the same device,
and pieces that it cuts for others, so that only what moves is transferred. A task needs only what
tasks make that begin at an earlier step; so no two can wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from eindecomp.engines.resources import seconds_of
from eindecomp.layout.boxes import Box, volume
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import DeviceRow, DeviceStep
from eindecomp.tra.program.memory import bytes_on, is_view
from eindecomp.tra.program.program import Program

Key = tuple[int, int, Box]
"""A block: the device that has it, the buffer, and which part of the tensor it is."""
_COPIED, _HANDED_OVER = 1e10, 2e9  # bytes a second, within a task and from one to the next, about
_SHARE = 20  # of the time of a task for what it hands over to the next one of its device


@dataclass(eq=False, slots=True)
class RayTask:
    """Consecutive steps of one device; dictionaries of None are sets that keep their order."""

    device: int
    start: int
    stop: int
    """The first step, and the one after the last."""
    given: dict[int, None] = field(default_factory=dict[int, None])
    """The buffers of inputs that it reads."""
    needs: dict[Key, None] = field(default_factory=dict[Key, None])
    """The blocks that it takes from other tasks."""
    gives: dict[Key, None] = field(default_factory=dict[Key, None])
    """The blocks that it passes on."""
    steps: int = 0
    """How many there are beside loads and frees, which are no work."""
    work: float = 0.0
    """About how many seconds they take."""
    largest: float = 0.0
    """Those of the longest of them."""

    def is_full(self, work: float, seconds: float, live: int) -> bool:
        """Whether a step of so much work is better left to another task.

        A long step may have short ones beside it, which are not worth a task of their own; and what
        is live must be worth handing over.
        """
        if not self.steps or not seconds:
            return bool(self.steps)
        least = max(seconds, _SHARE * live / _HANDED_OVER)
        return self.work >= least and self.work - self.largest + work >= seconds


@dataclass(frozen=True)
class Job:
    """A program and its tasks, each after those whose results it needs: all that workers know."""

    program: Program
    tasks: tuple[RayTask, ...]


def job_of(program: Program, seconds: float) -> Job:
    """The tasks of a program, which take about so many seconds where the program allows it."""
    cutter = _TaskCutter(program, seconds)
    for number in range(len(program.steps)):
        cutter.add(number)
    for number in program.outputs.values():
        for device in range(program.devices):
            if volume(program.buffers[number].box(program.mesh, device)):
                cutter.keep(device, number)
    tasks = sorted(cutter.tasks, key=lambda task: (task.start, task.device))
    return Job(program, tuple(task for task in tasks if task.steps or task.gives))


def origin(program: Program, buffer: int, device: int) -> int:
    """The buffer whose arrays a device reads where it reads a buffer: another one's for a view."""
    read = program.buffers[buffer]
    while is_view(program, read, device) and volume(read.box(program.mesh, device)):
        assert read.alias_of is not None  # noqa: S101 - views are views of something
        read = program.buffers[read.alias_of]
    return read.number


def fetched(own: DeviceStep) -> Iterator[tuple[int, int, Box]]:
    """What a device takes from others in a step: the peer, its buffer and the block."""
    if isinstance(own.step, steps.Communication):
        for piece in own.exchange.receives:
            yield piece.peer, own.step.source, piece.box


class _TaskCutter:
    """The tasks so far, and which of them made what."""

    def __init__(self, program: Program, seconds: float) -> None:
        self.program, self.seconds = program, seconds
        self.rows: list[DeviceRow] = [program.on(d) for d in range(program.devices)]
        self.tasks = [RayTask(d, 0, 0) for d in range(program.devices)]
        self.current = list(self.tasks)
        """The task of each device that steps are added to."""
        self.made: dict[tuple[int, int], tuple[RayTask, Box]] = {}
        """For a buffer on a device the task that wrote to it last, and the block that is there."""
        self.given_by: dict[Key, RayTask] = {}
        self.live: dict[int, int] = {}
        """The bytes of a device's blocks that are yet to be read, by buffer."""

    def add(self, number: int) -> None:
        """Add a step to a task of every device, or begin new ones with it."""
        step = self.program.steps[number]
        if isinstance(step, steps.Load | steps.Free):
            for task in self.current:
                task.stop = number + 1
            if isinstance(step, steps.Free):
                self.live.pop(step.buffer, None)
            return
        before = list(self.current)
        work = self._work(step)
        for device, row in enumerate(self.rows):
            self._begin(number, row.steps[number], device, work, before)
        for device, row in enumerate(self.rows):
            self._put(number, row.steps[number], device, before)
        self.live[step.into] = bytes_on(self.program, self.program.buffers[step.into], 0)

    def _work(self, step: steps.MakingStep) -> float:
        """About how many seconds a step takes each device."""
        program = self.program
        if isinstance(step, steps.Compute):
            return seconds_of(program.graph, program.computed_by(step)) / program.devices
        return program.buffers[step.into].nbytes(program.mesh, 0) / _COPIED

    def _begin(
        self, number: int, own: DeviceStep, device: int, work: float, before: list[RayTask]
    ) -> None:
        """Begin a new task where a step cannot or should not be added to the one before."""
        task = self.current[device]
        waits = any(before[peer].start >= task.start for peer, _, _ in fetched(own))
        if waits or task.is_full(work, self.seconds, sum(self.live.values())):
            task = self.current[device] = RayTask(device, number, number)
            self.tasks.append(task)
        task.stop = number + 1
        task.steps += 1
        task.work += work
        task.largest = max(task.largest, work)

    def _put(self, number: int, own: DeviceStep, device: int, before: list[RayTask]) -> None:
        """Note what a device's part of a step reads and writes."""
        task, step = self.current[device], own.step
        for peer, buffer, box in fetched(own):
            task.needs[self._cut(before[peer], peer, buffer, box)] = None
        match step:
            case steps.Compute():
                for read, box in zip(step.reads, own.reads, strict=True):
                    if read is not None and box is not None and volume(box):
                        self._read(task, read.buffer)
            case steps.Move():
                if origin(self.program, step.into, device) != step.into:
                    return  # a view: whoever reads it reads what it is a view of
                ends = self._ends_with(number, step.source)
                for piece in own.exchange.kept:
                    self._own_part(task, before[device], step.source, piece.box, cut=ends)
            case steps.ReduceScatter():
                if volume(own.box):
                    self._own_part(task, before[device], step.source, own.box, cut=True)
            case steps.AllGather():
                for piece in own.exchange.kept:
                    self._own_part(task, before[device], step.buffer, piece.box, cut=True)
            case _:
                pass
        self.made[device, steps.used_by(step)[-1]] = task, own.box

    def _ends_with(self, number: int, buffer: int) -> bool:
        """Whether nobody reads a buffer after a step."""
        for step in self.program.steps[number + 1 :]:
            if not isinstance(step, steps.Free):
                return False
            if step.buffer == buffer:
                return True
        return False

    # Who passes what on to whom

    def _own_part(self, task: RayTask, last: RayTask, buffer: int, box: Box, *, cut: bool) -> None:
        """Let a task read a block that its device has: cut out by the task before, or whole."""
        if cut and task is not last:
            task.needs[self._cut(last, task.device, buffer, box)] = None
        else:
            self._read(task, buffer)

    def _read(self, task: RayTask, buffer: int) -> None:
        """Let a task read all that its device has of a buffer."""
        buffer = origin(self.program, buffer, task.device)
        if self.program.buffers[buffer].role is steps.Role.GIVEN:
            task.given[buffer] = None
            return
        maker, _ = self.made[task.device, buffer]
        if maker is not task:
            task.needs[self.keep(task.device, buffer)] = None

    def keep(self, device: int, buffer: int) -> Key:
        """Let the task that made a block pass it on as it is."""
        maker, box = self.made[device, buffer]
        return self._pass_on(maker, (device, buffer, box))

    def _cut(self, task: RayTask, device: int, buffer: int, box: Box) -> Key:
        """Let a task of a device pass a piece of a buffer on."""
        buffer = origin(self.program, buffer, device)
        key = device, buffer, box
        if key in self.given_by:
            return key
        if self.program.buffers[buffer].role is not steps.Role.GIVEN:
            _, have = self.made[device, buffer]
            if have == box:
                return self.keep(device, buffer)
        self._read(task, buffer)
        return self._pass_on(task, key)

    def _pass_on(self, task: RayTask, key: Key) -> Key:
        if key not in self.given_by:
            self.given_by[key] = task
            task.gives[key] = None
        return key
