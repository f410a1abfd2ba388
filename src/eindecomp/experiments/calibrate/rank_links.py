"""Links of the ranks of a job, by what engine `spmd` does: steps of small plans that move a tensor.

A plan has one step that communicates along one axis of the mesh; the other axes cut a label of
their own, so that all groups of the axis communicate at once. A rank binds that step as the engine
does, and begins and ends it again and again. So a reduction includes combining by the kernel, and
a tensor goes from rows to columns in whichever way the engine finds faster.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.spmd.exchange import exchange_of
from eindecomp.engines.spmd.host_arrays import HostArrays, shared_array
from eindecomp.engines.spmd.rank_row import RankMemory, bind_row
from eindecomp.engines.spmd.watch import watch_of
from eindecomp.errors import InputError
from eindecomp.experiments.calibrate.clock import seconds_each
from eindecomp.experiments.calibrate.links import Message
from eindecomp.graph.text.elaborate import parse
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import group_along
from eindecomp.planner.make import plan as make_plan
from eindecomp.tra.program.device_row import Transfer, exchange
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import Move, ReduceScatter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from eindecomp.engines.spmd.exchange import Transport
    from eindecomp.engines.spmd.rank_row import Do
    from eindecomp.experiments.calibrate.clock import Clock, Way
    from eindecomp.planner.costs.machine import Collective
    from eindecomp.planner.plan import Plan

_BESIDE = 4 << 20  # bytes that are received beside computing
_TILE = np.ones((128, 128), np.float32)  # what is multiplied meanwhile
_ITEM = 4


@dataclass(frozen=True, slots=True)
class MovingStep:
    """A step of a plan that communicates, as this rank carries it out, and its memory."""

    begin: Do
    end: Do
    memory: RankMemory
    into: int
    received: int
    """Bytes that come to each device, on average."""

    def start(self) -> None:
        """Begin to communicate."""
        self.begin(self.memory)

    def finish(self) -> None:
        """Wait for what comes, and let go of it."""
        self.end(self.memory)
        self.memory.drop(self.into, sum(array.nbytes for array in self.memory.arrays(self.into)))

    def __call__(self) -> None:
        """All of it."""
        self.start()
        self.finish()


class RankLinks:
    """The ranks of a job as a mesh; every rank calls everything in the same order."""

    def __init__(self, transport: Transport, mesh: Mapping[str, int] | None = None) -> None:
        self.transport, self._watch = transport, watch_of(transport)
        self._arrays = HostArrays(transport)
        self.rank, self.ranks = transport.rank, transport.size
        if self.ranks < 2:
            raise InputError(
                "collectives need at least 2 ranks: mpirun -n 2 eindecomp calibrate --engine spmd"
            )
        self.mesh = Mesh.of_devices(self.ranks) if mesh is None else Mesh.of_axes(mesh)
        if self.mesh.devices != self.ranks:
            raise InputError(f"the mesh {dict(mesh or {})} is not of {self.ranks} ranks")

    @contextmanager
    def ending_together(self) -> Generator[None]:
        """Lets all ranks end where one of them fails: the others would wait for it."""
        try:
            yield
        except BaseException as error:
            self._watch.failed(f"{type(error).__name__}: {error}")
            raise

    def turn(self, way: Way, times: int = 1) -> float:
        """Seconds of one of several calls in a row on the slowest rank; all begin together."""
        self._watch.run += 1  # another place, for whoever watches
        with one_thread_each(), self._watch.waiting("a turn of what is measured"):
            self._slowest(0.0)
            return self._slowest(seconds_each(way, times))

    def _slowest(self, seconds: float) -> float:
        """The most that any rank says, once all have said it."""
        told = self.transport.gather_counts(np.array([round(1e9 * seconds)]))
        return float(told.max()) / 1e9

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the mesh."""
        return self.mesh.names

    @property
    def collectives(self) -> Mapping[Collective, Callable[[str, int], Message]]:
        """All of them."""
        return {
            "all_gather": lambda axis, size: _message(self._all_gather(axis, size)),
            "all_to_all": lambda axis, size: _message(self._all_to_all(axis, size)),
            "reduce_scatter": lambda axis, size: _message(self._reduce_scatter(axis, size)),
            "point_to_point": self._point_to_point,
        }

    def _ways(self, axis: str) -> int:
        return self.mesh.sizes[self.mesh.names.index(axis)]

    def _all_gather(self, axis: str, size: int) -> MovingStep:
        """Every rank gets all of what its group has a part of each."""
        ways = self._ways(axis)
        length = ways * max(size // _ITEM // (ways - 1), 1)
        plan = self._plan(
            axis, f"X[b,i: {length}], Y[b,k: {ways}]", "Z[b,i,k] <- X[b,i] * Y[b,k]",
            {"X": "i", "Y": "k", "Z": "k"},
        )  # fmt: skip
        return self._moving(plan, Move)

    def _all_to_all(self, axis: str, size: int) -> MovingStep:
        """From rows to columns of a square, of which a rank lacks all but one of its squares.

        It is computed first, since what is computed is sent in another way than what is given.
        """
        ways = self._ways(axis)
        side = ways * max(isqrt(size // _ITEM // (ways - 1)), 1)
        plan = self._plan(
            axis, f"X[b,i: {side},j: {side}]", "Y[b,i,j] <- X[b,i,j] + 1\nZ[b,i,j] <- Y[b,i,j] + 1",
            {"X": "i", "Y": "i", "Z": "j"},
        )  # fmt: skip
        return self._moving(plan, Move)

    def _reduce_scatter(self, axis: str, size: int) -> MovingStep:
        """Every rank has a part of a sum, and gets its own piece of the whole."""
        ways = self._ways(axis)
        length = ways * max(size // _ITEM // (ways - 1), 1)
        plan = self._plan(
            axis, f"X[b,h: {ways}], Y[b,h,i: {length}]", "Z[b,i] <- sum X[b,h] * Y[b,h,i]",
            {"X": "h", "Y": "h", "Z": "i"},
        )  # fmt: skip
        return self._moving(plan, ReduceScatter)

    def _plan(self, axis: str, inputs: str, vertex: str, cut: Mapping[str, str]) -> Plan:
        """A plan that cuts a label of each tensor along an axis, and `b` along all others."""
        others = tuple(name for name in self.axes if name != axis)
        count = self.ranks // self._ways(axis)
        text = f"input {inputs.replace('[b,', f'[b: {count},', 1)}\n{vertex}\noutput Z"
        pins = {tensor: {"b": others, label: (axis,)} for tensor, label in cut.items()}
        axes = dict(zip(self.axes, self.mesh.sizes, strict=True))
        return make_plan(parse(text, "calibrate"), mesh=axes, pin=pins, rewrite=False)

    def _moving(self, plan: Plan, kind: type[Move | ReduceScatter]) -> MovingStep:
        """The only step of a kind that moves anything, made ready; all ranks do so together."""
        program = program_of(plan)
        [(number, step)] = [
            (number, step)
            for number, step in enumerate(program.steps)
            if isinstance(step, kind) and program.moved_by(step)
        ]
        row, arrays = program.on(self.rank), self._arrays
        with self._watch.waiting("the binding of steps"):
            bound = bind_row(program, row, arrays, _load_nothing)[number]
        assert bound.end is not None  # noqa: S101 - every rank receives
        buffers, steps = program.buffers, len(program.steps)
        memory = RankMemory(arrays, {}, {}, [None] * len(buffers), [0] * steps)
        source = buffers[step.source]
        shape = shape_of(source.box(program.mesh, self.rank))
        # As the engine makes what is sent all-to-all: where others can read it.
        memory.held[step.source] = tuple(shared_array(shape, dtype) for dtype in source.types)
        for array in memory.arrays(step.source):
            array[...] = 1
        received = program.moved_by(step) // self.ranks
        return MovingStep(bound.begin, bound.end, memory, step.into, received)

    def _point_to_point(self, axis: str, size: int) -> Message:
        """Every rank sends a block to the next of its group."""
        group = group_along(self.mesh, 1 << self.mesh.names.index(axis), self.rank)
        place, count = group.index(self.rank), max(size // _ITEM, 1)
        box = ((0, count),)
        to, source = group[(place + 1) % len(group)], group[place - 1]
        moved = exchange((Transfer(source, box),), (Transfer(to, box),))
        ring = exchange_of(moved, box, box, 0)
        own, others = np.ones(count, np.float32), np.empty(count, np.float32)
        return Message(lambda: ring.start(self._arrays, own, others).finish(), _ITEM * count)

    def overlap(self, clock: Clock) -> float:
        """The fraction of computing beside which an all-gather runs, 0 to 1."""
        gather = self._all_gather(self.axes[-1], _BESIDE)
        alone = clock.best("an all-gather alone", gather)
        calls = max(round(alone / clock.best("a small product", _multiply)), 1)

        def compute() -> None:
            for _ in range(calls):
                _multiply()

        def both() -> None:
            gather.start()
            compute()
            gather.finish()

        computing = clock.best("small products", compute)
        together = clock.best("an all-gather beside products", both)
        hidden = (alone + computing - together) / min(alone, computing)
        return min(max(hidden, 0.0), 1.0)


def _message(step: MovingStep) -> Message:
    return Message(step, step.received)


def _multiply() -> Any:
    return _TILE @ _TILE


def _load_nothing(memory: RankMemory, into: int) -> None:
    """What a step that communicates asks of no input."""
    del memory, into
