"""What a run tells while it goes, its events, and what it gives back, its `Result` and `Stats`.

Bars, traces and counters are made of events. Their times are seconds after the run started; workers
are numbered within a run. `RunRecord` tells them, and counts what ends up in `Stats`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from eindecomp.above import from_above
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import EinDecompError, InputError, RunError, quote, suggest
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.boxes import Box, show_box
from eindecomp.tra.program.device_row import DeviceStep
from eindecomp.tra.program.memory import fullest
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter, Step, kind_of

Array = np.ndarray[Any, Any]

PROGRAM = "program"
"""In place of a vertex: what an engine runs as a whole, whose vertices have no times."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """So many tasks are about to run."""

    tasks: int


@dataclass(frozen=True, slots=True)
class KernelCompiled:
    """A kernel was compiled within a task; one that was loaded from disk is not told of."""

    what: str
    device: int
    worker: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A worker begins with a device's task."""

    vertex: str
    kind: str
    device: int
    worker: int
    start: float


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A worker has done a device's task."""

    vertex: str
    kind: str
    device: int
    worker: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """So many bytes reached devices for a vertex; `kind` is that of the step that moves them."""

    vertex: str
    kind: str
    count: int
    time: float


@dataclass(frozen=True, slots=True)
class TensorFreed:
    """A tensor, or a part of its sum, was dropped after its last use."""

    tensor: str
    count: int


Event = RunStarted | KernelCompiled | TaskStarted | TaskFinished | BytesMoved | TensorFreed
Listener = Callable[[Event], None]
ByName = Mapping[str, Any]
"""The inputs that a run is given, or its run-time scalars."""


# What a run gives back


@dataclass(frozen=True, slots=True)
class Stats:
    """What a run took.

    Attributes:
        seconds: How long it took, such as `0.25`.
        flops: The operations that kernels carried out, such as `524288`.
        bytes_moved: Between devices for what the plan computes, such as `65536`: `plan.cost` of a
            plan for bytes. Engines whose devices have memory of their own count it where it moves
            (`apart`, `spmd`, `ray`, `jax` in what XLA has compiled); where they share one
            (`threads`, `torch` on one device), it is what was planned, and nothing need be copied.
        bytes_by_vertex: The same by vertex, such as `{"Z": 65536}`.
        peak_memory: Bytes of inputs, results and intermediate tensors that were held at once, on
            the device that held most, such as `2**20`; devices that share memory count as one.
        tasks: How many tasks there were, such as `12`.
        workers: How many workers shared them, such as `2`.
        bytes_placed: Between devices to bring tensors that were given into the layouts in which the
            plan wants them, such as `0`; placing arrays of the caller's is not counted.
        recovered: What was computed again because a worker or a machine was lost, on engines that
            survive it: a line for each task, such as `()`.
        predicted: Seconds that the schedule of a run was expected to take, where tensors come and
            go, such as `0.2`.
        cut_into: Into how many pieces vertices were cut, such as `8`, where they are more than the
            plan's devices, because its tiles did not fit in memory; what moved is then what moved
            between these.
    """

    seconds: float
    flops: int
    bytes_moved: int
    bytes_by_vertex: Mapping[str, int]
    peak_memory: int
    tasks: int
    workers: int
    bytes_placed: int = 0
    recovered: tuple[str, ...] = ()
    predicted: float | None = None
    cut_into: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Result(Mapping[str, Array]):
    """The outputs by name, gathered when they are asked for, and `stats`.

    Attributes:
        tensors: The outputs where they lie on the devices, such as `tensors["Z"]`.
        counted: What the run took, or what makes it up, `Stats` or a function: few ask, and brief
            runs come by the thousand.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> graph = ed.parse("input X[i: 4]\\nZ[i] <- X[i] * 2\\noutput Z")
        >>> result = ed.run(ed.plan(graph, 2), {"X": np.ones(4, "float32")})
        >>> result["Z"], result.stats.bytes_moved
        (array([2., 2., 2., 2.], dtype=float32), 0)
    """

    tensors: Mapping[str, Tensor]
    counted: Stats | Callable[[], Stats] = field(repr=False)
    _gathered: dict[str, Array] = field(default_factory=dict[str, Array], repr=False)

    @property
    def stats(self) -> Stats:
        """What the run took."""
        if not isinstance(self.counted, Stats):
            object.__setattr__(self, "counted", self.counted())
            return self.stats
        return self.counted

    # A mapping compares its values, and arrays have no single answer to that.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, name: Vertex | str) -> Array:
        name = name.name if isinstance(name, Vertex) else name
        if name not in self._gathered:
            if name not in self.tensors:
                raise KeyError(self._unknown(name))  # by which a mapping knows what is not in it
            self._gathered[name] = self.tensors[name].numpy()
        return self._gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{t.name}{list(t.shape)} {t.dtype}" for t in self.tensors.values())
        stats = self.stats
        took = f"{stats.seconds:.3g} seconds, {stats.bytes_moved:,} bytes moved"
        return f"<Result {outputs or 'without outputs'}; {took}>"

    def _repr_html_(self) -> str:
        return from_above("show.notebook").result_html(self)

    def _unknown(self, name: object) -> str:
        return f"there is no output {quote(name)}{suggest(str(name), self.tensors)}"

    def tensor(self, name: Vertex | str) -> Tensor:
        """An output where it lies on the devices, to be given as an input without gathering it.

        Args:
            name: The output, such as `"Z"`.
        """
        name = name.name if isinstance(name, Vertex) else name
        if name not in self.tensors:
            raise InputError(self._unknown(name))
        return self.tensors[name]


# Recording a run


@contextmanager
def naming_tile(program: Program, own: DeviceStep, device: int) -> Generator[None]:
    """Make what a kernel raises a `RunError` that names the vertex, the tile and the device."""
    into: int = getattr(own.step, "into")  # noqa: B009 - only steps that compute come here
    with naming(program.graph[program.buffers[into].tensor], own.box, device):
        yield


@contextmanager
def naming(vertex: Vertex, box: Box, device: int) -> Generator[None]:
    """Like `naming_tile`, for a tile that no step mentions."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        raise failed_at(vertex, box, device, error) from error


def failed_at(vertex: Vertex, box: Box, device: int, error: Exception) -> RunError:
    """What to raise for an error within a tile."""
    return RunError(f"{vertex}, tile {show_box(box)} on device {device}: {reason(error)}")


def reason(error: BaseException) -> str:
    """An error in words: of others' errors, which say less, the type too."""
    return str(error) if isinstance(error, EinDecompError) else f"{type(error).__name__}: {error}"


class RunRecord:
    """The record of one run of a program, kept step by step; times begin when it is made."""

    def __init__(
        self, program: Program, on_event: Listener | None, devices: int | None = None
    ) -> None:
        """`devices` are those that it is a record of, by default all."""
        self.program, self.on_event = program, on_event
        self.start = perf_counter()
        self._moved: dict[str, int] = {}
        self.tasks = program.tasks * (program.devices if devices is None else devices)
        self.tell(RunStarted(self.tasks))

    def tell(self, event: Event) -> None:
        """Report an event, if somebody listens."""
        if self.on_event is not None:
            self.on_event(event)

    @contextmanager
    def task(
        self, own: DeviceStep, device: int, worker: int = 0, *, shown: bool = True
    ) -> Generator[None]:
        """Report the start and end of a device's part of a step, if that computes anything.

        A part that is not `shown` only gets a communication under way.
        """
        step, kind = own.step, kind_of(own.step)
        if not shown or not isinstance(step, Compute | Generate | ReduceScatter):
            yield
            return
        name = self.program.buffers[step.into].tensor
        begun = self.now()
        self.tell(TaskStarted(name, kind, device, worker, begun))
        with naming_tile(self.program, own, device):
            yield
        self.tell(TaskFinished(name, kind, device, worker, begun, self.now()))

    def moved(self, step: Step, count: int) -> None:
        """Note that devices have received so many bytes in a step."""
        if count:
            vertex: str = getattr(step, "vertex")  # noqa: B009 - only steps with one move anything
            self._moved[vertex] = self._moved.get(vertex, 0) + count
            self.tell(BytesMoved(vertex, kind_of(step), count, self.now()))

    def result(
        self,
        tensors: Mapping[str, Tensor],
        *,
        placed: int = 0,
        peak: int | None = None,
        workers: int = 1,
        recovered: tuple[str, ...] = (),
        predicted: float | None = None,
        cut_into: int | None = None,
        took: Callable[[], float] | None = None,
    ) -> Result:
        """The outputs among `tensors` with what the run took.

        `placed` are the bytes that moved to bring given tensors into the wanted layouts, `peak` the
        most that a device held, by default what the memory model says, `recovered` what was
        computed again after a loss, `predicted` the seconds that were expected, `cut_into` the
        pieces where they had to be more than asked for. `took` waits for devices that are still
        busy, and says how many seconds it took.
        """
        seconds = self.now()

        def count() -> Stats:
            program, moved = self.program, self._moved
            return Stats(
                seconds if took is None else took(),
                program.operations,
                sum(moved.values()),
                {vertex: moved.get(vertex, 0) for vertex in program.bytes_by_vertex},
                fullest(program).bytes if peak is None else peak,
                self.tasks,
                workers=workers,
                bytes_placed=placed,
                recovered=recovered,
                predicted=predicted,
                cut_into=cut_into,
            )

        return Result({name: tensors[name] for name in self.program.output_names}, count)

    def now(self) -> float:
        """Seconds since the run started."""
        return perf_counter() - self.start
