"""Hands the tasks of a run to Ray, a few ahead of what is done, and hears what becomes of them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from eindecomp.engines.ray.cluster import RETRIES, Node, call_off, ray_module
from eindecomp.engines.ray.worker import run_task
from eindecomp.errors import EinDecompError, RunError
from eindecomp.tra.program.steps import Compute, Generate, ReduceScatter

if TYPE_CHECKING:
    from eindecomp.engines.ray.tasks import Job, Key, RayTask
    from eindecomp.engines.ray.worker import Order, Report
    from eindecomp.tra.program.program import Program

    Ref = Any
    """What Ray gives for a result that is yet to come."""

_AHEAD = 256  # tasks that are handed over before the first of them is done
_AT_A_TIME = 32
_PATIENCE = 0.2  # seconds in which an error or an interrupt is noticed


class Submitting:
    """Calls functions as Ray tasks, each on the node of its device."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def call(
        self,
        function: Callable[..., Any],
        device: int,
        *given: Any,
        results: int = 1,
        retries: int = RETRIES,
    ) -> list[Ref]:
        """References to the results of a call; lost ones are computed again, so many times."""
        node = self.nodes[device % len(self.nodes)].name if len(self.nodes) > 1 else None
        made = _remote(function, results, node, retries).remote(*given)
        return made if results > 1 else [made]


@cache
def _remote(function: Callable[..., Any], results: int, node: str | None, retries: int) -> Any:
    ray = ray_module()
    options: dict[str, Any] = {
        "num_cpus": 1,
        "num_returns": results,
        "max_retries": retries,
        "retry_exceptions": False,  # a kernel that fails would fail again
    }
    if node is not None:
        on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        options["scheduling_strategy"] = on_node(node, soft=True)  # another, if it is gone
    return ray.remote(**options)(function)


class TasksOfRun:
    """One run of a job: its tasks in order, and what they pass on."""

    def __init__(
        self,
        job: Job,
        submitting: Submitting,
        order: Callable[[int], Order],
        given: Callable[[RayTask], list[Any]],
        hear: Callable[[Report], None],
    ) -> None:
        self.job, self.submitting, self.hear = job, submitting, hear
        self.order, self.given = order, given
        self.blocks: dict[Key, Ref] = {}
        self.readers = Counter(key for task in job.tasks for key in task.needs)
        """How many tasks are yet to be handed over that need a block."""

    def run(self, kept: set[Key]) -> Mapping[Key, Ref]:
        """Carry out all tasks; references to the blocks that are kept."""
        waiting: dict[Ref, int] = {}
        try:
            for number, task in enumerate(self.job.tasks):
                waiting[self._submit(number, task, kept)] = number
                if len(waiting) >= _AHEAD:
                    self._wait(waiting)
            while waiting:
                self._wait(waiting)
        except BaseException:  # Ctrl-C among them, and what a listener raises
            if waiting:
                with suppress(Exception):
                    call_off(self.order(0).run)
            raise
        return self.blocks

    def _submit(self, number: int, task: RayTask, kept: set[Key]) -> Ref:
        """Hand a task over, and let go of blocks that no later one needs."""
        needs = [self.blocks[key] for key in task.needs]
        report, *made = self.submitting.call(
            run_task, task.device, pickle.dumps(self.order(number)), *self.given(task), *needs,
            results=1 + len(task.gives),
        )  # fmt: skip
        self.blocks.update(zip(task.gives, made, strict=True))
        for key in task.needs:
            self.readers[key] -= 1
        for key in (*task.needs, *task.gives):
            if not self.readers[key] and key not in kept:
                self.blocks.pop(key, None)
        return report

    def _wait(self, waiting: dict[Ref, int]) -> None:
        """Hear of some tasks that are done."""
        ray = ray_module()
        done, _ = ray.wait(
            list(waiting), num_returns=min(_AT_A_TIME, len(waiting)), timeout=_PATIENCE
        )
        if not done:
            return
        for ref, report in zip(done, self._reports(done, waiting), strict=True):
            del waiting[ref]
            self.hear(report)

    def _reports(self, done: list[Ref], waiting: Mapping[Ref, int]) -> list[Report]:
        ray = ray_module()
        try:
            return [pickle.loads(told) for told in ray.get(done)]  # noqa: S301 - of our own tasks
        except ray.exceptions.RayError:
            for ref in done:
                self._raise(ref, self.job.tasks[waiting[ref]])
            raise

    def _raise(self, ref: Ref, task: RayTask) -> None:
        """Raise what went wrong with a task, if anything did."""
        ray = ray_module()
        try:
            ray.get(ref)
        except ray.exceptions.RayError as error:
            raise reason_of(error, what_it_makes(self.job.program, task)) from None


def what_it_makes(program: Program, task: RayTask) -> str:
    """The vertices of a task, and its device."""
    steps = program.steps[task.start : task.stop]
    computed = (s.into for s in steps if isinstance(s, Compute | Generate | ReduceScatter))
    names = dict.fromkeys(program.buffers[into].tensor for into in computed)
    return f"{', '.join(names) or 'pieces'} on device {task.device}"


def reason_of(error: Exception, where: str) -> Exception:
    """What to tell the user of an error of Ray's: what a kernel raised, or what was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, EinDecompError):
        return cause
    lines = str(cause or error).strip().splitlines() or [""]
    kind = type(cause or error).__name__
    return RunError(f"{where}: {kind}: {lines[0]}")
