"""How long collectives along an axis take, by size.

Between threads moving is free, since all read the same memory; only reducing takes time.

Ranks of a job are measured by what engine `spmd` does: a plan has one step that communicates along
one axis of the mesh; the other axes cut a label of their own, so that all groups of the axis
communicate at once. A rank binds that step as the engine does, and begins and ends it again and
again. So a reduction includes combining by the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from eindecomp.engines.spmd.exchange import Transport, exchange_of
from eindecomp.engines.spmd.host_arrays import HostArrays
from eindecomp.engines.spmd.rank_row import RankMemory, bind_row
from eindecomp.engines.spmd.watch import watch_of
from eindecomp.errors import InputError
from eindecomp.experiments.calibrate.kernels import Say, TurnTimer, Way, seconds_each
from eindecomp.graph.text.elaborate import parse
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import group_along
from eindecomp.planner.costs.machine import ANY_AXIS, Curve, highest, middle, ratio
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.device_row import Transfer, exchange
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import Move, ReduceScatter

Curves = dict[str, dict[str, Curve]]

_NOISE = 1.3  # how many times as slow one axis may be as another that is like it
_BESIDE = 4 << 20  # bytes that are received beside computing
_TILE = np.ones((128, 128), np.float32)  # what is multiplied meanwhile
_ITEM = 4


class Message(NamedTuple):
    """A collective of one size."""

    start: Way
    finish: Way
    """Waits for what comes, and lets go of it."""
    received: int
    """The bytes that each device receives on average, about as many as were asked for."""

    def way(self) -> None:
        """Do it once."""
        self.start()
        self.finish()


MakeMessage = Callable[[str, int], Message]
"""Makes a collective along an axis, of a size in bytes."""


def measured(
    collectives: Mapping[str, MakeMessage],
    axes: Sequence[str],
    sizes: Sequence[int],
    timer: TurnTimer,
    say: Say,
) -> Curves:
    """Seconds by size for every collective and axis."""
    curves: Curves = {}
    for collective, make in collectives.items():
        curves[collective] = {}
        for axis in axes:
            what = f"{collective.replace('_', ' ')} along {axis}"
            say(what)
            points: dict[int, float] = {}
            for size in sizes:
                message = make(axis, size)
                seconds = timer.best(f"{what}, {message.received} bytes", message.way)
                points[message.received] = min(seconds, points.get(message.received, seconds))
            curves[collective][axis] = ascending(points)
    return curves


def alike_together(curves: Curves, axes: Sequence[str]) -> Curves:
    """One curve for neighbouring axes that are alike, and one for axes of any other name.

    Axes that are equal but for noise are interchangeable, so that plans are found sooner and proved
    better. Where all are alike, no axis is named.
    """
    runs: list[list[str]] = []
    for axis in axes:
        joined = [*runs[-1], axis] if runs else []
        if joined and all(ratio(own[a] for a in joined) <= _NOISE for own in curves.values()):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    together: Curves = {}
    for collective, own in curves.items():
        shared = [middle(own[axis] for axis in run) for run in runs]
        named = {axis: curve for run, curve in zip(runs, shared, strict=True) for axis in run}
        together[collective] = {ANY_AXIS: highest(shared), **(named if len(runs) > 1 else {})}
    return together


def ascending(points: Mapping[int, float]) -> Curve:
    """A curve through points of ascending sizes, where a smaller message never takes longer.

    Noise only adds to what was measured, so the shorter of two times in the wrong order is right.

    >>> ascending({1: 5.0, 2: 3.0, 4: 4.0}).points
    ((1.0, 3.0), (2.0, 3.0), (4.0, 4.0))
    """
    least = [*accumulate([*points.values()][::-1], min)][::-1]
    return Curve(tuple(zip(points, least, strict=True)))


def adding(pool: ThreadPoolExecutor, devices: int) -> MakeMessage:
    """Threads that each add what others have left in memory to what they have."""

    def reduce_scatter(axis: str, size: int) -> Message:
        del axis
        elements = max(size // _ITEM, 1)
        own, others = ([np.ones(elements, np.float32) for _ in range(devices)] for _ in range(2))
        add = partial(pool.map, np.add, own, others, own)
        return Message(lambda: list(add()), lambda: None, _ITEM * elements)

    return reduce_scatter


class Moving(NamedTuple):
    """A tensor that moves: the step that does it, its graph, and which label of each is cut."""

    step: type[Move | ReduceScatter]
    inputs: str
    vertices: str
    cuts: dict[str, str]


MOVING = {
    # Every rank gets the whole tensor, of which each rank of its group has a part.
    "all_gather": Moving(
        Move,
        "X[b,i: {length}], Y[b,k: {ways}]",
        "Z[b,i,k] <- X[b,i] * Y[b,k]",
        {"X": "i", "Y": "k", "Z": "k"},
    ),
    # From rows to columns of a square, of which a rank lacks all but one of its squares. It is
    # computed first, since computed tensors are sent in another way than inputs.
    "all_to_all": Moving(
        Move,
        "X[b,i: {side},j: {side}]",
        "Y[b,i,j] <- X[b,i,j] + 1\nZ[b,i,j] <- Y[b,i,j] + 1",
        {"X": "i", "Y": "i", "Z": "j"},
    ),
    # Every rank has a part of a sum, and gets its own piece of the whole.
    "reduce_scatter": Moving(
        ReduceScatter,
        "X[b,h: {ways}], Y[b,h,i: {length}]",
        "Z[b,i] <- sum X[b,h] * Y[b,h,i]",
        {"X": "h", "Y": "h", "Z": "i"},
    ),
}


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
        self.axes = self.mesh.names

    @contextmanager
    def ending_together(self) -> Generator[None]:
        """End all ranks if one of them fails: the others would wait for it."""
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
        """The most seconds that any rank reports, once all have."""
        told = self.transport.gather_counts(np.array([round(1e9 * seconds)]))
        return float(told.max()) / 1e9

    @property
    def collectives(self) -> dict[str, MakeMessage]:
        """What makes a message of each collective."""

        made = {collective: partial(self._moving, collective) for collective in MOVING}
        return {**made, "point_to_point": self._point_to_point}

    def _plan(self, moving: Moving, axis: str, size: int) -> Plan:
        """A plan that cuts a label of each tensor along an axis, and `b` along all others."""
        ways = self.mesh.sizes[self.axes.index(axis)]
        part = size // _ITEM // (ways - 1)
        sizes = {"ways": ways, "length": ways * max(part, 1), "side": ways * max(isqrt(part), 1)}
        inputs = moving.inputs.format(**sizes).replace("[b,", f"[b: {self.ranks // ways},", 1)
        graph = parse(f"input {inputs}\n{moving.vertices}\noutput Z", "calibrate")
        others = tuple(name for name in self.axes if name != axis)
        pins = {tensor: {"b": others, label: (axis,)} for tensor, label in moving.cuts.items()}
        mesh = dict(zip(self.axes, self.mesh.sizes, strict=True))
        return make_plan(graph, mesh=mesh, pin=pins, rewrite=False, keep_on_interrupt=False)

    def _moving(self, collective: str, axis: str, size: int) -> Message:
        """The only step of a plan that moves anything, made ready; all ranks do so together."""
        moving = MOVING[collective]
        program = program_of(self._plan(moving, axis, size))
        [(number, step)] = [
            (number, step)
            for number, step in enumerate(program.steps)
            if isinstance(step, moving.step) and program.moved_by(step)
        ]
        arrays = self._arrays
        with self._watch.waiting("the binding of steps"):
            # What communicates loads no input.
            bound = bind_row(program, program.on(self.rank), arrays, lambda _m, _i: None)[number]
        end = bound.end
        assert end is not None  # noqa: S101 - every rank receives
        buffers, steps = program.buffers, len(program.steps)
        memory = RankMemory(arrays, {}, {}, [()] * len(buffers), [0] * steps)
        source = buffers[step.source]
        shape = shape_of(source.box(program.mesh, self.rank))
        memory.held[step.source] = tuple(np.ones(shape, of) for of in source.types)

        def finish() -> None:
            end(memory)
            memory.drop(step.into, sum(array.nbytes for array in memory.held[step.into]))

        received = program.moved_by(step) // self.ranks
        return Message(lambda: bound.begin(memory), finish, received)

    def _point_to_point(self, axis: str, size: int) -> Message:
        """Every rank sends a block to the next of its group."""
        group = group_along(self.mesh, 1 << self.mesh.names.index(axis), self.rank)
        place, count = group.index(self.rank), max(size // _ITEM, 1)
        box = ((0, count),)
        to, source = group[(place + 1) % len(group)], group[place - 1]
        ring = exchange_of(exchange((Transfer(source, box),), (Transfer(to, box),)), box, box, 0)
        own, others = np.ones(count, np.float32), np.empty(count, np.float32)
        send = partial(ring.start, self._arrays, own, others)
        return Message(lambda: send().finish(), lambda: None, _ITEM * count)

    def overlap(self, timer: TurnTimer) -> float:
        """The fraction of computing beside which an all-gather runs, 0 to 1."""
        gather = self._moving("all_gather", self.axes[-1], _BESIDE)
        alone = timer.best("an all-gather alone", gather.way)
        calls = max(round(alone / timer.best("a small product", _multiply)), 1)

        def compute() -> None:
            for _ in range(calls):
                _multiply()

        def both() -> None:
            gather.start()
            compute()
            gather.finish()

        computing = timer.best("small products", compute)
        together = timer.best("an all-gather beside products", both)
        hidden = (alone + computing - together) / min(alone, computing)
        return min(max(hidden, 0.0), 1.0)


def _multiply() -> Any:
    return _TILE @ _TILE
