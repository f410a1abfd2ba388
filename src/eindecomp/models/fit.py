"""`fit`: a training loop over any graph whose inputs are tied to their next values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from eindecomp.api.compile import compile as compile_plan
from eindecomp.api.compile import engine_of, plan_together
from eindecomp.engines.engine import Engine, device_count, ranks_of
from eindecomp.engines.executable import Executable
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError, RunError, check_whole
from eindecomp.graph.graph import Graph
from eindecomp.lang.dtypes import Array
from eindecomp.models.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    RunConfig,
    check_storable,
    config_text,
)
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.show.progress import counting

Batch = Mapping[str, object]
"""Arrays for the inputs of a graph that a step does not update."""


@runtime_checkable
class Batches(Protocol):
    """Data that can be read from any step on, which is what resuming needs.

    Examples:
        >>> from eindecomp.models.paper_graphs import Synthetic
        >>> isinstance(Synthetic(4, 10, 3), Batches)
        True
    """

    def batches(self, start: int) -> Iterator[Batch]:
        """The batches from a given one on.

        Args:
            start: The number of the first, counted from 0, such as `100`.
        """
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Fitted:
    """The result of training: the state after the last step, and the loss of every step.

    Attributes:
        state: Arrays by name, such as `state["W1"]`.
        losses: The loss of each step, such as `losses[-1]`.
        plan: The plan that every step ran, such as `plan.cost`.
        bytes_moved: Between devices, for what the plan computes, over the steps that this call
            took, such as `4096`.
        bytes_placed: Between devices, to bring next values to where the plan wants them; `0` if it
            has the ties.
    """

    state: Mapping[str, Array]
    losses: list[float]
    plan: Plan
    bytes_moved: int = 0
    bytes_placed: int = 0

    @property
    def step(self) -> int:
        """The number of steps, those before a resumed checkpoint included."""
        return len(self.losses)

    def __repr__(self) -> str:
        loss = f", loss {self.losses[-1]:.4g}" if self.losses else ""
        return f"<Fitted after step {self.step}{loss}: {', '.join(self.state)}>"


class NotSavedError(RunError):
    """Training is done, but its checkpoint cannot be written.

    Args:
        message: Why, such as `"no space left"`.
        fitted: The result of training, with `fitted.state`.

    Examples:
        >>> import eindecomp as ed
        >>> issubclass(NotSavedError, ed.RunError)
        True
    """

    def __init__(self, message: str, fitted: Fitted) -> None:
        super().__init__(message)
        self.fitted = fitted


def fit(
    graph: Graph,
    data: Batches | Iterable[Batch],
    state: Mapping[str, Array],
    *,
    lr: float | Callable[[int], float],
    steps: int | None = None,
    devices: int | None = None,
    plan: Plan | None = None,
    engine: str | Engine = "threads",
    options: Mapping[str, Any] | None = None,
    checkpoint: str | Path | None = None,
    every: int = 100,
    resume: bool = True,
    config: RunConfig | None = None,
    loss: str = "loss",
    progress: bool | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> Fitted:
    """Train until step number `steps`, or until there is no more data.

    The state is placed on the engine's devices once and stays there, and only the loss is gathered
    after a step. With a checkpoint that exists already, training resumes from it and gives the same
    numbers as if it had not stopped. If it cannot be written, as on a full disk, training continues
    with a warning and tries again `every` steps later. Ranks of an engine such as `spmd` write
    each its own blocks, and any number of ranks goes on from them, also one process.

    Args:
        graph: One step of training, such as `ed.models.ffnn(512, 1000, 256, 10)`.
        data: Batches, such as `ed.models.Synthetic(512, 1000, 10)`; an iterable is read from its
            beginning and skipped when training resumes.
        state: The inputs that the graph updates, as `ed.models.initial(graph)` gives them; its
            arrays are only read.
        lr: The learning rate, such as `0.1`, or a function of the step, which counts from 1.
        steps: The number of the last step, such as `1000`.
        devices: How many to plan for, such as `4`; by default as many as the engine has: cores,
            GPUs, JAX's devices or ranks.
        plan: A plan of the graph, such as `ed.plan(graph, 4)`, in place of one made here.
        engine: A name, such as `"threads"`, or an engine.
        options: Those of the engine of that name, such as `{"workers": 2}`.
        checkpoint: A folder in which the state is kept now and then, such as `"run"`.
        every: How many steps lie between two checkpoints, such as `100`.
        resume: Whether to go on from a checkpoint that exists; `False` starts over.
        config: The user's own settings, such as `{"lr": 0.1}`, which must be the same on resuming.
        loss: The output that is the loss, such as `"loss"`.
        progress: Whether a bar shows how far training has come: `True`, `False`, or None to show it
            on a terminal or in a notebook.
        on_step: Is called after each step with its number and loss, such as `print`.

    Raises:
        NotSavedError: The last checkpoint cannot be written; `fitted` holds the state.
        RunError: The loss is not finite.

    Examples:
        >>> import eindecomp as ed
        >>> graph = ed.models.ffnn(8, 4, 4, 3)
        >>> data, state = ed.models.Synthetic(8, 4, 3), ed.models.initial(graph)
        >>> ed.models.fit(graph, data, state, lr=0.1, steps=2, devices=1).step
        2
    """
    check_whole(every=every)
    check_whole(0, steps=0 if steps is None else steps)
    runner = engine_of(engine, options)
    kept = None if checkpoint is None else CheckpointFolder(Path(checkpoint), ranks_of(runner))
    _check(graph, state, loss, kept, config)
    at = kept.load(graph, config) if kept is not None and resume else None
    at = at or Checkpoint(0, {name: state[name] for name in graph.ties}, [])
    config = (at.config if config is None else config) or {}
    is_first = not ranks_of(runner).rank
    if plan is None:
        n = device_count(runner) if devices is None else devices
        plan = plan_together(lambda: make_plan(graph, n, keep_on_interrupt=False), runner)
    with compile_plan(plan, runner) as executable:
        loop = Loop(graph, executable, lr, loss, at.state, at.losses)
        with counting(progress if is_first else False, steps) as show:
            for batch in _batches(data, at.step, steps):
                value = loop.take(batch)
                if kept is not None and loop.done % every == 0:
                    wrong = loop.save(kept, config)
                    if wrong is not None and is_first:
                        told = f"{wrong}; step {loop.done} is not saved"
                        warnings.warn(told, RuntimeWarning, stacklevel=2)
                show(f"training, loss {value:.4f}", loop.done)
                if on_step is not None:
                    on_step(loop.done, value)
        wrong = None if kept is None or kept.latest == loop.done else loop.save(kept, config)
        fitted = Fitted(loop.gather(), loop.losses, plan, loop.bytes_moved, loop.bytes_placed)
    if wrong is not None:
        told = f"{wrong}; the state after step {loop.done} is this error's `fitted`"
        raise NotSavedError(told, fitted)
    return fitted


class Loop:
    """The state between two steps, which stays on the devices of an executable."""

    def __init__(
        self,
        graph: Graph,
        executable: Executable,
        lr: float | Callable[[int], float],
        loss: str,
        state: Mapping[str, Any],
        losses: list[float],
    ) -> None:
        self.graph, self.lr, self.loss = graph, lr, loss
        self.losses = losses
        self.bytes_moved = self.bytes_placed = 0
        self._executable = executable
        self._tensors: dict[str, Tensor] = executable.place(state)

    @property
    def done(self) -> int:
        """The number of steps so far."""
        return len(self.losses)

    def take(self, batch: Batch) -> float:
        """One step; its loss."""
        step = self.done + 1
        known = {"lr": self.lr(step) if callable(self.lr) else self.lr, "step": step}
        scalars = {name: value for name, value in known.items() if name in self.graph.scalars}
        # Nobody reads the state of the last step again: its memory is that of the step to come.
        result = self._executable({**batch, **scalars, **self._tensors}, donate=self.graph.ties)
        self._tensors = {name: result.tensor(new) for name, new in self.graph.ties.items()}
        self.bytes_moved += result.stats.bytes_moved
        self.bytes_placed += result.stats.bytes_placed
        value = float(result[self.loss])
        if not isfinite(value):
            raise RunError(f"the loss is {value} at step {step}")
        self.losses.append(value)
        return value

    def gather(self) -> dict[str, Array]:
        """The state as arrays that belong to the caller."""
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}

    def save(self, kept: CheckpointFolder, config: RunConfig) -> InputError | None:
        """Write a checkpoint, unless the last step left numbers that training cannot continue from.

        Returns the reason if it cannot be written.
        """
        try:
            kept.save(self.graph, self._tensors, self.losses, config)
        except InputError as error:
            return error
        return None


def _check(
    graph: Graph,
    state: Mapping[str, Array],
    loss: str,
    kept: CheckpointFolder | None,
    config: RunConfig | None,
) -> None:
    """Refuse at once what would otherwise fail only after long training."""
    if not graph.ties:
        raise InputError("nothing to train: no input is tied to an output, as by `tie W <- V`")
    if missing := [name for name in graph.ties if name not in state]:
        raise InputError(f"the state to begin with lacks {', '.join(missing)}")
    shapes = {vertex.name: vertex.shape for vertex in graph.outputs}
    if shapes.get(loss) != ():
        what = f"of shape {shapes[loss]}, not a number" if loss in shapes else "no output"
        raise InputError(f"the loss {loss!r} is {what}")
    config_text(config or {})
    if kept is not None:
        check_storable(graph)
        kept.check()


def _batches(data: Batches | Iterable[Batch], start: int, steps: int | None) -> Iterator[Batch]:
    left = None if steps is None else max(0, steps - start)
    if isinstance(data, Batches):
        return islice(data.batches(start), left)
    return islice(data, start, None if left is None else start + left)
