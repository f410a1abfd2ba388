"""`RayEngine`: runs plans on a Ray cluster, also while its machines come and go.

The driver hands tasks over and hears of them; it holds no blocks. Whatever is lost with a worker or
a machine is computed again from the files of the inputs, with the same result to the last bit.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from eindecomp.engines.array_files import check_outputs
from eindecomp.engines.ray.cluster import Cluster, StoredJob, check_address, recoveries
from eindecomp.engines.ray.files import Folder, MappedArray, Stored
from eindecomp.engines.ray.submit import Submitting, TasksOfRun, what_it_makes
from eindecomp.engines.ray.tasks import job_of
from eindecomp.engines.ray.tensors import (
    RayBlocks,
    in_layouts,
    load,
    source_of,
    tensor_of,
    write_outputs,
)
from eindecomp.engines.ray.worker import Order
from eindecomp.engines.resources import check_space, largest_tile
from eindecomp.engines.result import RunRecord, TaskFinished, TaskStarted
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError
from eindecomp.layout.boxes import volume
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import kind_of

if TYPE_CHECKING:
    from types import TracebackType

    from eindecomp.engines.ray.files import KeptFile
    from eindecomp.engines.ray.tasks import Job, Key, RayTask
    from eindecomp.engines.ray.tensors import Write
    from eindecomp.engines.ray.worker import Report
    from eindecomp.engines.result import Listener, Result
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.program import Program

NAME = "ray"
_FILES = 1000  # of earlier runs that a result may be computed again from
TASK = 0.02
"""Seconds of work that make up for what a task costs Ray, about a millisecond."""


class RayEngine:
    """Runs plans as tasks of a Ray cluster.

    Without `address` a Ray of this machine is started, with `workers` processes (as many as there
    are cores) and `memory` for the blocks that they pass on. It lasts until the engine is closed or
    the process ends, as results stay there. With `address`, or where the process uses a Ray
    already, that one is joined, and left as it was.

    Arrays of the caller's are written to files in `directory`, which every node must be able to
    read, and are kept there while results of them are used, the last `history` bytes of them at
    most. `outputs` are files to which workers write results: {"Z": "z.zarr"}, or "Z=z.npy".
    `task_seconds` is about how much work is worth a task.
    """

    name = NAME

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        memory: int | str | None = None,
        directory: str | Path | None = None,
        outputs: Mapping[str, str | Path] | str | None = None,
        history: int | str = "1GB",
        task_seconds: float = TASK,
    ) -> None:
        if workers is not None and (not isinstance(workers, int) or workers < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"workers is a number of processes, not {workers!r}")
        if not _is_number(task_seconds) or not task_seconds >= 0:
            raise InputError(f"task_seconds is a number, 0 or more, not {task_seconds!r}")
        if directory is not None and not Path(directory).is_dir():
            raise InputError(f"directory: there is no folder {str(directory)!r}")
        check_address(address)
        self.address, self.workers = address, workers
        self.memory = None if memory is None else parse_bytes(memory)
        self.directory = None if directory is None else str(directory)
        self.outputs, self.history = outputs, parse_bytes(history)
        self.task_seconds = task_seconds
        self._cluster: Cluster | None = None
        self._folder: Folder | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, joined or started when it is first needed."""
        if self._cluster is None or not self._cluster.is_open:
            self._cluster = Cluster(self.address, self.workers, self.memory)
        return self._cluster

    @property
    def folder(self) -> Folder:
        """Where arrays of the caller's are written."""
        if self._folder is None:
            if self.directory is None and not self.cluster.is_one_machine():
                raise InputError(
                    "directory: this Ray has nodes on other machines, which cannot read arrays of "
                    "this process; name a directory that all of them share, or give the inputs as "
                    "files there"
                )
            self._folder = Folder(self.directory)
        return self._folder

    def prepare(self, plan: Plan) -> RayProgram:
        """Make a plan ready to run."""
        program = program_of(plan)
        return RayProgram(self, program, check_outputs(program.graph, self.outputs))

    def close(self) -> None:
        """End the Ray that was started here, with all results that are in it."""
        if self._cluster is not None:
            self._cluster.close()
        if self._folder is not None:
            self._folder.remove()
        self._cluster = self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


class RayProgram:
    """A program and its tasks, where workers can read them."""

    def __init__(self, engine: RayEngine, program: Program, outputs: Mapping[str, Path]) -> None:
        self.engine, self.program, self.outputs = engine, program, outputs
        self.space = largest_tile(program)
        self._stored: StoredJob | None = None
        self._cluster: Cluster | None = None

    @cached_property
    def job(self) -> Job:
        """The tasks."""
        return job_of(self.program, self.engine.task_seconds)

    def stored(self) -> StoredJob:
        """The job as workers find it, in the cluster that is there now."""
        cluster = self.engine.cluster
        if self._stored is None or self._cluster is not cluster:
            self._stored, self._cluster = StoredJob(pickle.dumps(self.job)), cluster
        return self._stored

    def place(self, name: str, given: Any) -> Tensor:
        """Give every device its blocks of an input."""
        submitting, wanted = Submitting(self.engine.cluster.nodes()), self.program.layouts_of(name)
        blocks, _ = in_layouts(submitting, self.program.mesh, given, wanted, self._write)
        return tensor_of(self.program, name, blocks)

    def _write(self, array: Any) -> tuple[Stored, KeptFile]:
        return self.engine.folder.write(array)

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        on_event: Listener | None,
    ) -> Result:
        """Carry out all tasks."""
        del donated  # their blocks are let go of with the tensors
        if self.engine.address is None or self.engine.cluster.is_one_machine():
            check_space(self.program.graph, self.space)
        stored = self.stored()
        record = RunRecord(self.program, on_event)
        submitting = Submitting(self.engine.cluster.nodes())
        run = RayRun(self.job, submitting, record, self._write, self.engine.history)
        for name, given in inputs.items():
            run.give(name, given)
        tensors = run.carry_out(stored, scalars, inputs)
        write_outputs(submitting, run.name, self.outputs, tensors)
        return record.result(
            tensors,
            placed=run.placed,
            workers=len(run.workers),
            recovered=tuple(self._recovered(run.name)),
        )

    def _recovered(self, run: str) -> list[str]:
        found: list[str] = []
        for task, attempt, address in recoveries(run):
            what = task
            if task.isdigit():
                what = what_it_makes(self.program, self.job.tasks[int(task)])
            found.append(f"{what}: attempt {attempt + 1}, on {address}")
        return found

    def close(self) -> None:
        """Let go of the tasks; results keep what they can be computed again from."""
        self._stored = self._cluster = None


@dataclass
class RayRun:
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
            found[name] = tensor_of(self.program, name, RayBlocks({tiling: refs}, kept))
        return found

    def _places(self, number: int) -> list[Key | None]:
        """Every device's block of a buffer, None where that is empty."""
        mesh, buffer = self.program.mesh, self.program.buffers[number]
        boxes = [buffer.box(mesh, device) for device in range(mesh.devices)]
        return [(d, number, box) if volume(box) else None for d, box in enumerate(boxes)]

    def _given_to(self, task: RayTask) -> list[Any]:
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
        return tensor_of(self.program, name, RayBlocks(layouts, self.kept))

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
