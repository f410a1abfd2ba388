"""What users do with a plan: `compile` it for an engine, `run` it, `simulate` it.

`plan_together` makes one plan for all ranks of an engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from eindecomp.engines.engine import Engine, find_engine, ranks_of
from eindecomp.engines.executable import Executable
from eindecomp.engines.result import Event, Result
from eindecomp.errors import EinDecompError, InputError, PlanError
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.presets import machine_of
from eindecomp.planner.plan import Plan
from eindecomp.show.progress import is_wanted, showing
from eindecomp.show.trace import tracing
from eindecomp.store.plan_file import from_json, to_json
from eindecomp.tra.program.make import program_of
from eindecomp.tra.simulation.network import Network
from eindecomp.tra.simulation.simulate import SimulatedRun, simulate_program

_FAILED = b"failed: "


def compile(plan: Plan, engine: str | Engine = "threads", **options: Any) -> Executable:  # noqa: A001 - it does what the built-in one does: makes something ready to run
    """Make a plan ready to run on an engine.

    Args:
        plan: What `ed.plan` made, such as `ed.plan(graph, 2)`.
        engine: A name, such as `"threads"`, or an engine.
        **options: Those of the engine of that name, such as `workers=2`.

    Returns:
        An executable: it is called with the inputs, and places on the devices what is to stay
            there.

    Raises:
        InputError: There is no such engine or option, or its package is not installed.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> text = "input X[i: 2, j: 2], W[j, k: 2]\\nZ[i,k] <- sum X[i,j] * W[j,k]\\noutput Z"
        >>> graph = ed.parse(text)
        >>> with ed.compile(ed.plan(graph, 2)) as executable:
        ...     weights = executable.place({"W": np.eye(2, dtype="float32")})
        ...     result = executable({"X": np.ones((2, 2), "float32"), **weights})
        >>> result["Z"]
        array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"compile takes a Plan, as ed.plan makes it, not {type(plan).__name__}")
    return Executable(plan, engine_of(engine, options))


def engine_of(engine: str | Engine, options: Mapping[str, Any] | None = None) -> Engine:
    """The engine of a name with its options, or the engine itself."""
    if isinstance(engine, str):
        return find_engine(engine, options)
    if isinstance(engine, type) or not hasattr(engine, "prepare"):  # pyright: ignore[reportUnnecessaryComparison]
        raise InputError(f"engine is a name or an engine, not {engine!r}")
    if options:
        given = ", ".join(options)
        raise InputError(f"options ({given}) go with the name of an engine, not with an engine")
    return engine


def plan_together(make: Callable[[], Plan], engine: str | Engine = "spmd", **options: Any) -> Plan:
    """The plan that `make` makes, the same on all ranks of an engine that has several.

    Searches that a time limit ends may end otherwise in every process, and ranks with different
    plans refuse to start. So rank 0 makes it and the others read it; an engine that runs in one
    process makes it there.

    Args:
        make: Makes the plan, such as `lambda: ed.plan(graph, 8)`.
        engine: A name, such as `"spmd"`, or an engine.
        **options: Those of the engine of that name, such as `transport="mpi"`.

    Raises:
        PlanError: Rank 0 made no plan; its message says why.

    Examples:
        >>> import eindecomp as ed
        >>> graph = ed.parse("input X[i: 8]\\nZ[i] <- X[i] * 2\\noutput Z")
        >>> ed.plan_together(lambda: ed.plan(graph, 2), engine="threads").parts["Z"]
        {'i': 2}
    """
    ranks = ranks_of(engine_of(engine, options))
    share = ranks.share_bytes
    if ranks.size == 1:
        return make()
    if ranks.rank:
        text = share(None)
        if text.startswith(_FAILED):
            raise PlanError(f"rank 0 made no plan: {text[len(_FAILED) :].decode()}")
        return from_json(text)
    try:
        plan = make()
        text = to_json(plan)
    except BaseException as error:
        why = str(error) if isinstance(error, EinDecompError | OSError) else repr(error)
        share(_FAILED + why.encode())
        raise
    share(text)
    return plan


def run(
    plan: Plan,
    inputs: Mapping[str, object],
    engine: str | Engine = "threads",
    *,
    trace: str | Path | None = None,
    progress: bool | None = None,
    on_event: Callable[[Event], None] | None = None,
    **options: Any,
) -> Result:
    """Compute the outputs of the graph that was planned.

    Args:
        plan: What `ed.plan` made, such as `ed.plan(graph, 2)`.
        inputs: Arrays by name, and numbers for run-time scalars, such as `{"X": x, "lr": 0.1}`.
            Arrays that are stored in chunks (memory-mapped, zarr, HDF5) are read tile by tile, and
            so are files: `"x.npy"`, `"x.zarr"`, or a tensor of one, `"w.safetensors#W1"`.
        engine: A name, such as `"threads"`, or an engine.
        trace: A file to write for Perfetto or Chrome, with the rows of each device, such as
            `"run.json"`; where that fails after the run, as on a full disk, a warning says so.
        progress: Whether a bar shows how far the run has come: `True`, `False`, or None to show it
            once the run has taken a second, on a terminal or in a notebook.
        on_event: Is called with one event at a time, such as `print`; what it raises cancels the
            run, and is raised from here as it is.
        **options: Those of the engine of that name, such as `workers=2`.

    Returns:
        The outputs, `result["Z"]`, and what the run took, `result.stats`.

    Raises:
        InputError: What was given does not fit the inputs.
        RunError: A kernel failed.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> graph = ed.parse("input X[i: 4]\\nscalar a\\nZ[i] <- a * X[i]\\noutput Z")
        >>> ed.run(ed.plan(graph, 2), {"X": np.arange(4, dtype="float32"), "a": 10})["Z"]
        array([ 0., 10., 20., 30.], dtype=float32)
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"run takes a Plan, as ed.plan makes it, not {type(plan).__name__}")
    with compile(plan, engine, **options) as executable:
        return watched(executable, inputs, trace=trace, progress=progress, on_event=on_event)


def watched(
    executable: Executable,
    inputs: Mapping[str, object],
    *,
    trace: str | Path | None = None,
    progress: bool | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Result:
    """Call an executable with a trace, a progress bar and a listener, as `run` takes them."""
    if trace is None and not is_wanted(progress):
        return executable(inputs, on_event=on_event)
    listeners = [] if on_event is None else [on_event]

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    result = None
    try:
        with ExitStack() as stack:
            if trace is not None:
                listeners.append(stack.enter_context(tracing(trace)))
            if (bar := stack.enter_context(showing(progress))) is not None:
                listeners.append(bar)
            result = executable(inputs, on_event=tell)
    except OSError as error:
        if result is None:
            raise
        # What was computed is worth more than what was noted of it.
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)
    return result


def simulate(
    plan: Plan,
    machine: Machine | str | None = None,
    *,
    gather: str | None = None,
    reduce: str | None = None,
    cards: str = "device",
    overlap: float | None = None,
) -> SimulatedRun:
    """Simulate a run of a plan: kernels in order, communication beside them, links in turn.

    Where they overlap, communication begins and is waited for where engine spmd does so.

    Args:
        plan: What `ed.plan` made, such as `ed.plan(graph, 4)`.
        machine: An `ed.Machine` or a preset such as `"cpu-cluster"`; by default that of the plan.
        gather: Moves go by the levels of the mesh, in the rounds of a `"ring"` or `"doubling"`, or
            all messages at once, `"direct"`; by default as the machine's `rounds` say.
        reduce: Reductions, likewise; `"direct"`: every block goes to who combines it.
        cards: Whether every `"device"` has its own links to other nodes, or those of a `"node"`
            share theirs.
        overlap: The fraction of computing beside which communication runs, by default the
            machine's; `0`: one step follows another.

    Returns:
        The seconds, and where they go.

    Examples:
        >>> import eindecomp as ed
        >>> text = "input X[i: 64, j: 64], Y[j, k: 64]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z"
        >>> plan = ed.plan(ed.parse(text), 4, inputs="sharded")
        >>> run = ed.simulate(plan, "cpu-cluster")
        >>> bool(run.seconds > run.computing.max()), run.bytes_moved == plan.cost
        (True, True)
    """
    if not isinstance(plan, Plan):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"simulate takes a Plan, as ed.plan makes it, not {type(plan).__name__}")
    if machine is None and plan.machine is None:
        raise InputError("simulate needs a machine: the plan was made for none (machine=)")
    described = machine_of(plan.machine if machine is None else machine, axes=plan.mesh.axes)
    rounds = described.rounds
    network = Network(gather or rounds, reduce or rounds, cards)
    return simulate_program(program_of(plan), described, network, overlap=overlap)
