"""`RayEngine`: runs plans on a Ray cluster, also while its machines come and go.

The driver hands tasks over and hears of them; it holds no blocks. Whatever is lost with a worker or
a machine is computed again from the files of the inputs, with the same result to the last bit.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from eindecomp.engines.array_files import check_outputs
from eindecomp.engines.ray.cluster import Cluster, StoredJob, Submitting, check_address, recoveries
from eindecomp.engines.ray.run import RayRun, what_it_makes
from eindecomp.engines.ray.tasks import Job, job_of
from eindecomp.engines.ray.tensors import (
    Folder,
    KeptFile,
    Stored,
    in_layouts,
    tensor_of,
    write_outputs,
)
from eindecomp.engines.resources import check_space, largest_tile
from eindecomp.engines.result import ByName, Listener, Result, RunRecord
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.program import Program

NAME = "ray"
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
        is_number = isinstance(task_seconds, int | float) and not isinstance(task_seconds, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_number or not task_seconds >= 0:
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
        program = program_of(plan).check_moves_blocks(NAME)
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

    def __exit__(self, *error: object) -> None:
        self.close()


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
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Carry out all tasks."""
        del donated  # their blocks are let go of with the tensors
        if self.engine.address is None or self.engine.cluster.is_one_machine():
            check_space(self.program.graph, self.space)
        stored, history = self.stored(), self.engine.history
        record = RunRecord(self.program, on_event)
        submitting = Submitting(self.engine.cluster.nodes())
        run = RayRun(self.job, stored, scalars, submitting, record, self._write, history)
        for name, given in inputs.items():
            run.give(name, given)
        tensors = run.carry_out(inputs)
        write_outputs(submitting, run.name, self.outputs, tensors)
        again = tuple(self._recovered(run.name))
        return record.result(tensors, placed=run.placed, workers=len(run.workers), recovered=again)

    def _recovered(self, run: str) -> list[str]:
        told: list[str] = []
        for task, attempt, address in recoveries(run):
            is_number = task.isdigit()
            what = what_it_makes(self.program, self.job.tasks[int(task)]) if is_number else task
            told.append(f"{what}: attempt {attempt + 1}, on {address}")
        return told

    def close(self) -> None:
        """Let go of the tasks; results keep what they can be computed again from."""
        self._stored = self._cluster = None
