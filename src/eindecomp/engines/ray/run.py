"""One run of a job on Ray: what was given, what tasks tell, and the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from eindecomp.engines.events import TaskFinished, TaskStarted
from eindecomp.engines.ray.blocks import Blocks, in_layouts, load, source_of, tensor_of
from eindecomp.engines.ray.files import MappedArray, Stored
from eindecomp.engines.ray.submit import TasksOfRun
from eindecomp.engines.ray.worker import Order
from eindecomp.engines.tensor import Tensor
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.tra.program.steps import kind_of

if TYPE_CHECKING:
    from eindecomp.engines.ray.blocks import Write
    from eindecomp.engines.ray.cluster import StoredJob
    from eindecomp.engines.ray.submit import Submitting
    from eindecomp.engines.ray.tasks import Job, Key, Task
    from eindecomp.engines.ray.worker import Report
    from eindecomp.engines.record import RunRecord

_FILES = 1000  # of earlier runs that a result may be computed again from


@dataclass
class Run:
    """One run: what was given, and what tasks have told."""

    job: Job
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
        # Workers read the clock of the day, which the record does not.
        self.begun = time() - (perf_counter() - self.record.start)

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

    def carry_out(
        self, stored: StoredJob, scalars: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Run all tasks; the outputs."""
        timed = self.record.on_event is not None

        def order(number: int) -> Order:
            return Order(stored.name, self.name, number, scalars, timed)

        places = {name: self._places(number) for name, number in self.program.outputs.items()}
        wanted = {key for keys in places.values() for key in keys if key is not None}
        tasks = TasksOfRun(self.job, self.submitting, order, self._given_to, self._hear)
        blocks = tasks.run(wanted)
        kept = (*_latest(self.inherited, self.history), *self.kept, stored)
        found: dict[str, Tensor] = {}
        for name in (vertex.name for vertex in self.program.graph.outputs):
            if name not in places:
                found[name] = self._given_output(name, inputs[name])
                continue
            refs = [None if key is None else blocks[key] for key in places[name]]
            tiling = self.program.buffers[self.program.outputs[name]].tiling
            found[name] = tensor_of(self.program, name, Blocks({tiling: refs}, kept))
        return found

    def _places(self, number: int) -> list[Key | None]:
        """Every device's block of a buffer, None where that is empty."""
        mesh, buffer = self.program.mesh, self.program.buffers[number]
        boxes = [buffer.box(mesh, device) for device in range(mesh.devices)]
        return [(d, number, box) if volume(box) else None for d, box in enumerate(boxes)]

    def _given_to(self, task: Task) -> list[Any]:
        """The inputs that a task reads: the device's blocks, or files."""
        found: list[Any] = []
        for number in task.given:
            given = self.given[number]
            found.append(given[task.device] if isinstance(given, list) else given)
        return found

    def _given_output(self, name: str, given: Any) -> Tensor:
        """An output that is an input."""
        if name not in self.files:  # a tensor, and what is made of it outlives it
            return replace(given, name=name)
        whole = Tiling(uncut(self.program.graph[name].shape))
        layouts = load(self.submitting, self.program.mesh, self.files[name], [whole])
        return tensor_of(self.program, name, Blocks(layouts, self.kept))

    def _hear(self, report: Report) -> None:
        """Note what a task has told."""
        record, program = self.record, self.program
        worker = self.workers.setdefault(report.worker, len(self.workers))
        for number, count in report.moved:
            record.moved(program.steps[number], count)
        if record.on_event is None:
            return
        for number, device, begun, ended in report.times:
            step = program.steps[number]
            into: int = getattr(step, "into")  # noqa: B009 - steps that compute have one
            name, kind = program.buffers[into].tensor, kind_of(step)
            begun, ended = begun - self.begun, ended - self.begun
            record.tell(TaskStarted(name, kind, device, worker, begun))
            record.tell(TaskFinished(name, kind, device, worker, begun, ended))


def _latest(kept: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """Of what results can be computed again from, the latest, up to so many bytes of files."""
    total, found = 0, list[Any]()
    for each in reversed(dict.fromkeys(kept)):
        total += each.size
        if total > most or len(found) >= _FILES:
            break
        found.append(each)
    return tuple(reversed(found))
