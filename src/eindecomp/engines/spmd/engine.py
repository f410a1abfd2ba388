"""`SpmdEngine`: every rank of a job runs its own row of the program, over MPI or torch.distributed.

All ranks make the same calls in the same order: they prepare, place, run and gather together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import gethostname
from time import perf_counter
from typing import Any

import numpy as np

from eindecomp.engines.array_files import check_outputs
from eindecomp.engines.engine import agree
from eindecomp.engines.resources import check_space, is_little, needed_space
from eindecomp.engines.result import ByName, Listener, Result, RunRecord, Stats
from eindecomp.engines.spmd import job
from eindecomp.engines.spmd.exchange import exchange_of
from eindecomp.engines.spmd.rank_row import BoundStep, Do, RankMemory, bind_row
from eindecomp.engines.spmd.run_checkpoints import Call, RunCheckpoints, cuts_behind, in_segments
from eindecomp.engines.spmd.watch import NOWHERE, USUAL, watch_of
from eindecomp.engines.tensor import Tensor, placing_bytes
from eindecomp.errors import InputError
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.device_row import moves
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.overlap import StepPart, overlapped
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Communication, Load, ReduceScatter

Array = Any
"""Of the kind that the engine's tiles are."""
RankBlocks = dict[Tiling, Array]
"""For each layout of a tensor this rank's block of it."""

NAME = "spmd"


class SpmdEngine:
    """Runs plans on the ranks of a job, one device each.

    `transport` is `mpi` or `torch`, by default the one whose launcher started the job. With
    `overlap` communication begins as soon as its source is there; without, when its turn comes.
    A rank that waits `timeout` seconds for one that does nothing ends the job. `outputs` are files
    to which ranks write results, each its own block: {"Z": "z.zarr"}, or "Z=z.npy". With a folder
    `checkpoint`, ranks write what they hold as soon as a tensor of `checkpoint_at` is computed, and
    a rerun of the same plan on the same inputs begins there: ["H3", "H7"], or "H3,H7". With a
    `device` tiles are torch's tensors there, computed by its kernels: "cuda" is the GPU of each
    rank's own, between which NCCL moves them, and "cpu" the host. By default they are NumPy's
    arrays.
    """

    name = NAME

    def __init__(
        self,
        transport: str = "auto",
        overlap: bool = True,
        timeout: float = USUAL,
        outputs: Mapping[str, str | Path] | str | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_at: Sequence[str] | str = (),
        device: str | None = None,
    ) -> None:
        given: tuple[Any, Any] = overlap, timeout  # from the command line, of any types
        if not isinstance(given[0], bool):
            raise InputError(f"overlap must be true or false, not {overlap!r}")
        if not isinstance(given[1], int | float) or given[1] is True or not given[1] > 0:
            raise InputError(f"timeout is a number of seconds above 0, not {timeout!r}")
        self.overlap, self.timeout = overlap, float(timeout)
        if (checkpoint is None) != (not checkpoint_at):
            raise InputError("checkpoint is a folder, and checkpoint_at says when to write to it")
        self.checkpoint = None if checkpoint is None else Path(checkpoint).absolute()
        self.outputs, self.checkpoint_at = outputs, checkpoint_at
        self.transport = job.connect(transport)
        self.rank = self.transport.rank
        self._watch = watch_of(self.transport, self.timeout)
        self.ranks = job.WatchedRanks(self.transport, self._watch)
        with self._watch.waiting("the connecting of devices"):
            self.arrays = job.arrays_on(device, self.transport, self.ranks)
        self.stored = self.arrays.stored

    @property
    def device_count(self) -> int:
        """How many devices there are: one for each rank."""
        return self.transport.size

    def prepare(self, plan: Plan) -> SpmdProgram:
        """Make a plan ready to run; all ranks do so together."""
        program = program_of(plan)
        if self.arrays.kind != "numpy":
            program.check_moves_blocks(f"{NAME} on {self.arrays.kind}")
        return SpmdProgram(program, self)


class SpmdProgram:
    """A rank's row of a program, made ready."""

    def __init__(self, program: Program, engine: SpmdEngine) -> None:
        self.program, self.transport, self.ranks = program, engine.transport, engine.ranks
        transport, overlap = engine.transport, engine.overlap
        self._watch = watch_of(transport, engine.timeout)
        self._outputs = check_outputs(program.graph, engine.outputs)
        self._checkpoint = engine.checkpoint
        self._cuts = cuts_behind(program, engine.checkpoint_at) if engine.checkpoint else ()
        written = [(name, str(path)) for name, path in self._outputs.items()]
        written += [(str(cut), str(engine.checkpoint)) for cut in self._cuts]
        with self._watch.waiting("the comparison of all ranks' plans"):
            asked = f"overlap {overlap}, files {written}, arrays {engine.arrays.kind}"
            job.check_same_plan(program, transport, asked)
        self.rank = transport.rank
        self.row = program.on(self.rank)
        self._arrays = arrays = engine.arrays
        with self._watch.waiting("the comparison of all ranks' memory"):
            self._check_space()
        with self._watch.waiting("the binding of steps"):
            bound = bind_row(program, self.row, arrays, self._load)
        calls = _calls(overlapped(program) if overlap else None, bound)
        self._segments = in_segments(calls, self._cuts)
        self._receiving = _receiving(program)
        self._loads = [step.into for step in program.steps if isinstance(step, Load)]

    def _check_space(self) -> None:
        """Refuse, on all ranks, what does not fit with what the other ranks of this host hold."""
        if self._arrays.kind != "numpy" or is_little(self.program):
            return
        own = gethostname().encode()
        hosts = self.transport.gather_bytes(own)
        here = [rank for rank, host in enumerate(hosts) if host == own]
        space = needed_space(self.program, here)
        agree(self.ranks, lambda: check_space(self.program.graph, space))

    # Inputs

    def place(self, name: str, given: Any) -> Tensor:
        """Keep this rank's blocks of an input; a tensor that lies otherwise is brought there."""
        wanted = self.program.layouts_of(name)
        blocks = {tiling: self._block(given, tiling, copy=True) for tiling in wanted}
        return self._tensor(name, blocks)

    def _block(self, given: Any, wanted: Tiling, *, copy: bool) -> Array:
        """This rank's block of what was given; without `copy` an array may share its memory."""
        mesh = self.program.mesh
        if not isinstance(given, Tensor) or (given.mesh is not mesh and given.mesh != mesh):
            whole = given.numpy() if isinstance(given, Tensor) else given
            with self._watch.not_stuck():  # where it lies on a disk
                return self._arrays.block(whole, wanted.box(mesh, self.rank), copy=copy)
        held: RankBlocks = given.held()
        if wanted in held:
            return self._arrays.taken(held[wanted])
        with self._watch.waiting(f"the placing of {given.name}"):
            return self._rearranged(held, wanted, given.dtype)

    def _rearranged(self, held: RankBlocks, wanted: Tiling, dtype: Any) -> Array:
        """This rank's block of a layout, from blocks of another one."""
        mesh, rank = self.program.mesh, self.rank
        tiling, block = next(iter(held.items()))
        here, box = tiling.box(mesh, rank), wanted.box(mesh, rank)
        moved = moves(mesh, tiling, wanted, rank)
        exchange = exchange_of(moved, here, box, len(self.program.steps))
        arrays = self._arrays
        made = arrays.library.empty(shape_of(box), dtype)
        exchange.start(arrays, arrays.taken(block), made).finish()
        arrays.settle()
        return made

    def _load(self, memory: RankMemory, into: int) -> None:
        block = self._loaded(memory, into)
        memory.held[into] = (block,)
        memory.grow(block.nbytes)

    def _loaded(self, memory: RankMemory, into: int) -> Array:
        """This rank's block of an input."""
        buffer = self.program.buffers[into]
        return self._block(memory.inputs[buffer.tensor], buffer.tiling, copy=False)

    # Running

    def run(
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Carry out this rank's row."""
        start = perf_counter()
        program = self.program
        placed = sum(placing_bytes(program, name, given) for name, given in inputs.items())
        held: list[tuple[Any, ...]] = [()] * len(program.buffers)
        received, values = [0] * len(program.steps), [*scalars.values()]
        memory = RankMemory(self._arrays, inputs, scalars, held, received, values, donated)
        record = None if on_event is None else RunRecord(program, on_event, devices=1)
        watch = self._watch
        watch.begin_run(partial(job.in_words, program))
        kept = self._run_checkpoints(memory)
        try:
            with one_thread_each(), np.errstate(all="ignore"):
                self._carry_out(memory, record, kept)
                self._catch_up(len(program.steps))
                watch.waits = True
                stats = self._stats(memory, perf_counter() - start, placed)
        except BaseException as error:
            told = job.named(error, watch.step, program, self.row, self.transport)
            watch.failed(str(told))
            if isinstance(error, Exception) and told is not error:
                raise told from error
            raise
        finally:
            watch.step, watch.waits = NOWHERE, False
        tensors = {v.name: self._output(v.name, memory) for v in program.graph.outputs}
        job.write_outputs(self.ranks, self._outputs, tensors)
        if kept is not None:
            kept.end()
        return Result(tensors, stats)

    def _carry_out(
        self, memory: RankMemory, record: RunRecord | None, kept: RunCheckpoints | None
    ) -> None:
        """All steps, or those behind the last checkpoint of the same run."""
        watch, settle, first = self._watch, self._arrays.settle, 0
        if kept is not None:
            first, wanted = kept.restore(memory)
            for into in self._loads:
                if into in wanted:
                    self._load(memory, into)
        for segment, calls in enumerate(self._segments[first:], first):
            for step, do, waits in calls:
                watch.step, watch.waits = step, waits
                if record is not None:
                    self._do_and_tell(record, memory, step, do, waits)
                    continue
                do(memory)
                if waits:  # on a GPU, that it waits for others is seen to take time here
                    settle()
            if kept is not None and segment < len(self._cuts):
                self._catch_up(self._cuts[segment])
                kept.save(memory, segment)

    def _catch_up(self, step: int) -> None:
        """Wait at a step for the device to have come as far as this rank."""
        self._watch.step, self._watch.waits = step, False
        self._arrays.settle()

    def _run_checkpoints(self, memory: RankMemory) -> RunCheckpoints | None:
        if self._checkpoint is None:
            return None
        loaded = (self._loaded(memory, into) for into in self._loads)
        ways = self._checkpoint, self.program, self._cuts, self.ranks
        return RunCheckpoints(*ways, loaded, memory.values, self._arrays.library)

    def _do_and_tell(
        self, record: RunRecord, memory: RankMemory, step: int, do: Do, ends: bool
    ) -> None:
        own, before = self.row.steps[step], memory.received[step]
        with record.task(own, self.rank, shown=ends or not isinstance(own.step, ReduceScatter)):
            do(memory)
            self._arrays.settle()
        record.moved(own.step, memory.received[step] - before)

    def _output(self, name: str, memory: RankMemory) -> Tensor:
        number = self.program.outputs.get(name)
        if number is not None:
            return self._tensor(name, {self.program.buffers[number].tiling: memory.array(number)})
        given = memory.inputs[name]
        if isinstance(given, Tensor):  # what is made of it outlives it
            return replace(given, name=name)
        whole = Tiling(uncut(self.program.graph[name].shape))
        return self._tensor(name, {whole: self._block(given, whole, copy=True)})

    def _tensor(self, name: str, blocks: RankBlocks) -> Tensor:
        vertex, mesh = self.program.graph[name], self.program.mesh
        to_numpy = self._arrays.library.to_numpy
        whole = partial(self._gathered, vertex.shape, vertex.dtype)
        return Tensor(
            name, vertex.shape, vertex.dtype, NAME, mesh, tuple(blocks), blocks,
            gather=lambda held: to_numpy(whole(held)), own=whole,
        )  # fmt: skip

    def _gathered(self, shape: tuple[int, ...], dtype: Any, blocks: RankBlocks) -> Array:
        """All of a tensor, on every rank; all ask for it together."""
        with self._watch.waiting("the gathering of an output"):
            return self._rearranged(blocks, Tiling(uncut(shape)), dtype)

    def _stats(self, memory: RankMemory, seconds: float, placed: int) -> Stats:
        """What all ranks took together; each of them takes part."""
        program, received = self.program, memory.received
        names = [*program.bytes_by_vertex]
        counts = np.zeros(len(names), np.int64)
        for step, place in self._receiving:
            counts[place] += received[step]
        own = np.array([memory.peak, round(1e9 * seconds), *counts], np.int64)
        told = self.transport.gather_counts(own)
        peak, slowest = told[:, :2].max(0).tolist()
        total = told[:, 2:].sum(0).tolist()
        moved = sum(total), dict(zip(names, total, strict=True))
        tasks, devices = program.tasks * program.devices, program.devices
        return Stats(slowest / 1e9, program.operations, *moved, peak, tasks, devices, placed)

    def close(self) -> None:
        """Let go of the arrays that are kept for the next run."""
        self._arrays.let_go()


def _receiving(program: Program) -> list[tuple[int, int]]:
    """The steps that may bring bytes, and which vertex they are counted for."""
    places = {name: k for k, name in enumerate(program.bytes_by_vertex)}
    moving = ((k, step) for k, step in enumerate(program.steps) if isinstance(step, Communication))
    return [(k, places[step.vertex]) for k, step in moving if step.vertex in places]


def _calls(parts: Sequence[StepPart] | None, bound: Sequence[BoundStep]) -> list[Call]:
    """What is done in which step, and whether others may have to be waited for."""
    calls: list[Call] = []
    for part in map(StepPart, range(len(bound))) if parts is None else parts:
        step = bound[part.step]
        if part.begins:
            calls.append((part.step, step.begin, False))
        if part.ends and step.end is not None:
            calls.append((part.step, step.end, True))
    return calls
