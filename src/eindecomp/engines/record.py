"""`RunRecord`: what a run tells while it goes, and its `Stats` in the end."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from eindecomp.engines.events import BytesMoved, Event, RunStarted, TaskFinished, TaskStarted
from eindecomp.engines.result import Result, Stats
from eindecomp.errors import EinDecompError, RunError
from eindecomp.layout.boxes import show_box
from eindecomp.tra.program.memory import fullest
from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from eindecomp.engines.engine import Listener
    from eindecomp.engines.tensor import Tensor
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.device_row import DeviceStep
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Step


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
        ours = isinstance(error, EinDecompError)
        why = str(error) if ours else f"{type(error).__name__}: {error}"
        where = f"{vertex}, tile {show_box(box)} on device {device}"
        raise RunError(f"{where}: {why}") from error


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
