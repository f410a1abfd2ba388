"""`RayEngine`: runs plans on a Ray cluster, also while its machines come and go.

The driver hands tasks over and hears of them; it holds no blocks. Whatever is lost with a worker or
a machine is computed again from the files of the inputs, with the same result to the last bit.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from eindecomp.engines.events import TaskFinished, TaskStarted
from eindecomp.engines.ray.blocks import Blocks, load, rearrange, tensor_of
from eindecomp.engines.ray.cluster import Cluster, StoredJob, recoveries
from eindecomp.engines.ray.files import Folder, MappedArray, where_it_lies
from eindecomp.engines.ray.outputs import check_outputs, write_outputs
from eindecomp.engines.ray.submit import Submitting, TasksOfRun
from eindecomp.engines.ray.tasks import job_of
from eindecomp.engines.record import RunRecord
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.tra.boxes import volume
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import kind_of
from eindecomp.tra.program.tiling import Tiling, uncut

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from eindecomp.engines.engine import Listener
    from eindecomp.engines.ray.files import Stored
    from eindecomp.engines.ray.tasks import Task
    from eindecomp.engines.ray.worker import Report
    from eindecomp.engines.result import Result
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.program import Program

NAME = "ray"
TASK = 0.02
"""Seconds of work that make up for what a task costs Ray, about a millisecond."""
_RUNS = 1000  # files that a result may be computed again from


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
        """End the Ray that was started here, with all results that are in it, or leave the other."""
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


class RayProgram:
    """A program and its tasks, where workers can read them."""

    def __init__(self, engine: RayEngine, program: Program, outputs: Mapping[str, Path]) -> None:
        self.engine, self.program, self.outputs = engine, program, outputs
        self._stored: StoredJob | None = None
        self._cluster: Cluster | None = None

    @cached_property
    def job(self) -> Any:
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
        blocks, _ = self._blocks(submitting, given, wanted)
        return tensor_of(self.program, name, blocks)

    def _blocks(
        self, submitting: Submitting, given: Any, wanted: tuple[Tiling, ...]
    ) -> tuple[Blocks, int]:
        """An input in the wanted layouts, and the elements that were moved for that."""
        mesh = self.program.mesh
        if not isinstance(given, Tensor) or given.mesh != mesh:
            source, kept = self._source(given)
            return Blocks(load(submitting, mesh, source, wanted), kept), 0
        held: Blocks = given.held()
        layouts = {tiling: held.layouts[tiling] for tiling in wanted if tiling in held.layouts}
        moved = 0
        for tiling in wanted:
            if tiling not in layouts:
                layouts[tiling], elements = rearrange(submitting, mesh, held.layouts, tiling)
                moved += elements
        return Blocks({tiling: layouts[tiling] for tiling in wanted}, held.kept), moved

    def _source(self, given: Any) -> tuple[Stored, tuple[Any, ...]]:
        """The file of an input: its own, or one that is written now and kept."""
        source = where_it_lies(given)
        if source is not None:
            return source, ()
        array = given.numpy() if isinstance(given, Tensor) else given
        written, kept = self.engine.folder.write(array)
        return written, (kept,)

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        on_event: Listener | None,
    ) -> Result:
        """Carry out all tasks."""
        del donated  # their blocks are let go of with the tensors
        stored = self.stored()
        record = RunRecord(self.program, on_event)
        run = _Run(self, Submitting(self.engine.cluster.nodes()), record)
        for name, given in inputs.items():
            run.give(name, given)
        tensors = run.carry_out(stored, scalars, inputs)
        write_outputs(run.submitting, self.outputs, tensors)
        again = tuple(self._recovered(run.name))
        return record.result(tensors, placed=run.placed, workers=len(run.workers), recovered=again)

    def _recovered(self, run: str) -> list[str]:
        found: list[str] = []
        for number, attempt, address in recoveries(run):
            task: Task = self.job.tasks[number]
            steps = self.program.steps[task.start : task.stop]
            made = dict.fromkeys(s.vertex for s in steps if hasattr(s, "vertex"))  # pyright: ignore[reportAttributeAccessIssue]
            what = ", ".join(made) or "fills"
            found.append(f"{what} on device {task.device}: attempt {attempt + 1}, on {address}")
        return found

    def close(self) -> None:
        """Let go of the tasks; results keep what they can be computed again from."""
        self._stored = self._cluster = None


@dataclass
class _Run:
    """One run: what was given, and what tasks have told."""

    owner: RayProgram
    submitting: Submitting
    record: RunRecord

    def __post_init__(self) -> None:
        self.name = f"run:{uuid4().hex}"
        self.placed = 0
        self.given: dict[int, Stored | list[Any]] = {}
        """For each buffer of an input the file, or every device's block."""
        self.kept: tuple[Any, ...] = ()
        """The files that were written for this run."""
        self.inherited: tuple[Any, ...] = ()
        """What given tensors can be computed again from."""
        self.workers: dict[str, int] = {}
        self.files: dict[str, Stored] = {}
        self.program = self.owner.program
        # Ray's workers read the clock of the day, which the record does not.
        from time import perf_counter, time

        self.begun = time() - (perf_counter() - self.record.start)

    def give(self, name: str, given: Any) -> None:
        """Take an input, in the layouts that steps read."""
        buffers = self.program.inputs[name]
        if not isinstance(given, Tensor) or given.mesh != self.program.mesh:
            source, kept = self.owner._source(given)  # noqa: SLF001 - one class in two
            self.kept += kept
            self.files[name] = source
            if isinstance(source, MappedArray):
                self.given.update(dict.fromkeys((b.number for b in buffers), source))
                return
            layouts = load(self.submitting, self.program.mesh, source, [b.tiling for b in buffers])
            self.given.update((b.number, list(layouts[b.tiling])) for b in buffers)
            return
        wanted = tuple(buffer.tiling for buffer in buffers)
        blocks, moved = self.owner._blocks(self.submitting, given, wanted)  # noqa: SLF001
        self.placed += moved * given.dtype.itemsize
        self.inherited += blocks.kept
        self.given.update((b.number, list(blocks.layouts[b.tiling])) for b in buffers)

    def carry_out(
        self, stored: StoredJob, scalars: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Run all tasks; the outputs."""
        job, mesh = self.owner.job, self.program.mesh
        places = {
            name: [
                (device, number, box) if volume(box) else None
                for device in range(mesh.devices)
                for box in [self.program.buffers[number].box(mesh, device)]
            ]
            for name, number in self.program.outputs.items()
        }
        wanted = {key for keys in places.values() for key in keys if key is not None}
        arguments = lambda number: (stored.name, self.name, number, scalars)  # noqa: E731
        tasks = TasksOfRun(job, self.submitting, arguments, self._given_to, self._hear)
        blocks = tasks.run(wanted)
        kept = (*_latest(self.inherited, self.owner.engine.history), *self.kept, stored)
        found: dict[str, Tensor] = {}
        for vertex in self.program.graph.outputs:
            if vertex.name not in places:
                found[vertex.name] = self._given_output(vertex.name, inputs[vertex.name])
                continue
            refs = [None if key is None else blocks[key] for key in places[vertex.name]]
            tiling = self.program.buffers[self.program.outputs[vertex.name]].tiling
            found[vertex.name] = tensor_of(self.program, vertex.name, Blocks({tiling: refs}, kept))
        return found

    def _given_to(self, task: Task) -> list[Any]:
        """The inputs that a task reads: the device's blocks, or files."""
        found: list[Any] = []
        for number in task.given:
            given = self.given[number]
            found.append(given[task.device] if isinstance(given, list) else given)
        return found

    def _given_output(self, name: str, given: Any) -> Tensor:
        """An output that is an input."""
        if isinstance(given, Tensor):  # what is made of it outlives it
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
            step: Any = program.steps[number]
            name, kind = program.buffers[step.into].tensor, kind_of(step)
            begun, ended = begun - self.begun, ended - self.begun
            record.tell(TaskStarted(name, kind, device, worker, begun))
            record.tell(TaskFinished(name, kind, device, worker, begun, ended))


def _latest(kept: tuple[Any, ...], most: int) -> tuple[Any, ...]:
    """Of what results can be computed again from, the latest, up to so many bytes of files."""
    total, found = 0, list[Any]()
    for each in reversed(dict.fromkeys(kept)):
        total += each.size
        if total > most or len(found) >= _RUNS:
            break
        found.append(each)
    return tuple(reversed(found))
