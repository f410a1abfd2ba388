"""One run on Ray: hands its tasks over, a few ahead of what is done, and hears of them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any
from uuid import uuid4

from eindecomp.engines.ray.cluster import (
    Ref,
    StoredJob,
    Submitting,
    call_off,
    ray_module,
    reason_of,
)
from eindecomp.engines.ray.tasks import Job, Key, RayTask
from eindecomp.engines.ray.tensors import (
    MappedArray,
    RayBlocks,
    Stored,
    Write,
    in_layouts,
    load,
    source_of,
    tensor_of,
)
from eindecomp.engines.ray.worker import TaskOrder, TaskReport, run_task
from eindecomp.engines.result import RunRecord, TaskFinished, TaskStarted
from eindecomp.engines.tensor import Tensor
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter, kind_of

_FILES = 1000  # of earlier runs that a result may be computed again from
_AHEAD = 256  # tasks that are handed over before the first of them is done
_AT_A_TIME = 32
_PATIENCE = 0.2  # seconds in which an error or an interrupt is noticed


@dataclass
class RayRun:
    """One run: what was given, the blocks that tasks pass on, and what they have told."""

    job: Job
    stored: StoredJob
    scalars: Mapping[str, Any]
    submitting: Submitting
    record: RunRecord
    write: Write
    history: int
    """The bytes of files of earlier runs that are kept for results."""
    placed: int = 0
    name: str = field(default_factory=lambda: f"run:{uuid4().hex}")
    workers: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.program = self.job.program
        self.given: dict[int, Stored | list[Any]] = {}
        """For each buffer of an input the file, or every device's block."""
        self.files: dict[str, Stored] = {}
        self.kept: tuple[Any, ...] = ()
        """The files that were written for this run."""
        self.inherited: tuple[Any, ...] = ()
        """What given tensors can be computed again from."""
        self.blocks: dict[Key, Ref] = {}
        self.readers = Counter(key for task in self.job.tasks for key in task.needs)
        """How many tasks are yet to be handed over that need a block."""
        # Workers read the clock of the day, which the record does not.
        self.begun = time() - (perf_counter() - self.record.start)

    # Inputs

    def give(self, name: str, given: Any) -> None:
        """Take an input, in the layouts that steps read."""
        buffers, mesh = self.program.inputs[name], self.program.mesh
        wanted = [buffer.tiling for buffer in buffers]
        if isinstance(given, Tensor) and given.mesh == mesh:
            blocks, moved = in_layouts(self.submitting, mesh, given, wanted, self.write)
            self.placed += moved * given.dtype.itemsize
            self.inherited += blocks.kept
            layouts = blocks.layouts
        else:
            source, kept = source_of(given, self.write)
            self.kept += kept
            self.files[name] = source
            if isinstance(source, MappedArray):  # which every task can read where it is
                self.given.update(dict.fromkeys((buffer.number for buffer in buffers), source))
                return
            layouts = load(self.submitting, mesh, source, wanted)
        self.given.update((b.number, list(layouts[b.tiling])) for b in buffers)

    # Tasks

    def carry_out(self, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Run all tasks; the outputs."""
        places = {name: self._places(number) for name, number in self.program.outputs.items()}
        self._run_tasks({key for keys in places.values() for key in keys if key is not None})
        kept = (*_latest(self.inherited, self.history), *self.kept, self.stored)
        outputs: dict[str, Tensor] = {}
        for name in (vertex.name for vertex in self.program.graph.outputs):
            if name not in places:
                outputs[name] = self._given_output(name, inputs[name])
                continue
            refs = [None if key is None else self.blocks[key] for key in places[name]]
            tiling = self.program.buffers[self.program.outputs[name]].tiling
            outputs[name] = tensor_of(self.program, name, RayBlocks({tiling: refs}, kept))
        return outputs

    def _places(self, number: int) -> list[Key | None]:
        """Every device's block of a buffer, None where that is empty."""
        mesh, buffer = self.program.mesh, self.program.buffers[number]
        boxes = [buffer.box(mesh, device) for device in range(mesh.devices)]
        return [(d, number, box) if volume(box) else None for d, box in enumerate(boxes)]

    def _run_tasks(self, wanted: set[Key]) -> None:
        """Carry out all tasks; the blocks that are wanted stay."""
        waiting: dict[Ref, RayTask] = {}
        try:
            for number, task in enumerate(self.job.tasks):
                waiting[self._submit(number, task, wanted)] = task
                if len(waiting) >= _AHEAD:
                    self._wait(waiting)
            while waiting:
                self._wait(waiting)
        except BaseException:  # Ctrl-C among them, and what a listener raises
            if waiting:
                with suppress(Exception):
                    call_off(self.name)
            raise

    def _submit(self, number: int, task: RayTask, wanted: set[Key]) -> Ref:
        """Hand a task over, and let go of blocks that no later one needs."""
        timed = self.record.on_event is not None
        order = pickle.dumps(TaskOrder(self.stored.name, self.name, number, self.scalars, timed))
        inputs = [self.given[number] for number in task.given]
        given = [own[task.device] if isinstance(own, list) else own for own in inputs]
        needs = [self.blocks[key] for key in task.needs]
        report, *made = self.submitting.call(
            run_task, task.device, order, *given, *needs, results=1 + len(task.gives)
        )
        self.blocks.update(zip(task.gives, made, strict=True))
        for key in task.needs:
            self.readers[key] -= 1
        for key in (*task.needs, *task.gives):
            if not self.readers[key] and key not in wanted:
                self.blocks.pop(key, None)
        return report

    def _wait(self, waiting: dict[Ref, RayTask]) -> None:
        """Hear of some tasks that are done, or raise what went wrong with one of them."""
        ray, some = ray_module(), min(_AT_A_TIME, len(waiting))
        done, _ = ray.wait(list(waiting), num_returns=some, timeout=_PATIENCE)
        try:
            told = ray.get(done)
        except ray.exceptions.RayError:
            told = [self._told_by(ref, waiting[ref]) for ref in done]  # to know which it was
        for ref, report in zip(done, told, strict=True):
            del waiting[ref]
            self._hear(pickle.loads(report))  # noqa: S301 - of our own tasks

    def _told_by(self, ref: Ref, task: RayTask) -> bytes:
        ray = ray_module()
        try:
            return ray.get(ref)
        except ray.exceptions.RayError as error:
            raise reason_of(error, what_it_makes(self.program, task)) from None

    def _hear(self, report: TaskReport) -> None:
        """Note what a task has told."""
        record, program = self.record, self.program
        worker = self.workers.setdefault(report.worker, len(self.workers))
        for number, count in report.moved:
            record.moved(program.steps[number], count)
        for number, device, begun, ended in report.times:
            step = program.steps[number]
            into: int = getattr(step, "into")  # noqa: B009 - steps that compute have one
            name, kind = program.buffers[into].tensor, kind_of(step)
            begun, ended = begun - self.begun, ended - self.begun
            record.tell(TaskStarted(name, kind, device, worker, begun))
            record.tell(TaskFinished(name, kind, device, worker, begun, ended))

    def _given_output(self, name: str, given: Any) -> Tensor:
        """An output that is an input."""
        if name not in self.files:  # a tensor, and what is made of it outlives it
            return replace(given, name=name)
        whole = Tiling(uncut(self.program.graph[name].shape))
        layouts = load(self.submitting, self.program.mesh, self.files[name], [whole])
        return tensor_of(self.program, name, RayBlocks(layouts, self.kept))


def _latest(kept: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """Of what results can be computed again from, the latest, up to so many bytes of files."""
    total, latest = 0, list[Any]()
    for each in reversed(dict.fromkeys(kept)):
        total += each.size
        if total > most or len(latest) >= _FILES:
            break
        latest.append(each)
    return tuple(reversed(latest))


def what_it_makes(program: Program, task: RayTask) -> str:
    """The vertices of a task, and its device."""
    steps = program.steps[task.start : task.stop]
    computed = (s.into for s in steps if isinstance(s, Compute | Generate | ReduceScatter))
    names = dict.fromkeys(program.buffers[into].tensor for into in computed)
    return f"{', '.join(names) or 'pieces'} on device {task.device}"
