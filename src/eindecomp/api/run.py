"""`run`: carry out a plan on an engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from eindecomp.api.compile import compile as compile_plan
from eindecomp.errors import InputError
from eindecomp.planner.plan import Plan
from eindecomp.show.progress import is_wanted, showing
from eindecomp.show.trace import tracing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eindecomp.engines.engine import Engine
    from eindecomp.engines.executable import Executable
    from eindecomp.engines.result import Event, Result


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
    with compile_plan(plan, engine, **options) as executable:
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
    result = None
    try:
        with ExitStack() as stack:
            if trace is not None:
                listeners.append(stack.enter_context(tracing(trace)))
            if (bar := stack.enter_context(showing(progress))) is not None:
                listeners.append(bar)
            result = executable(inputs, on_event=_all(listeners))
    except OSError as error:
        if result is None:
            raise
        # What was computed is worth more than what was noted of it.
        warnings.warn(str(error), RuntimeWarning, stacklevel=3)
    return result


def _all(listeners: list[Callable[[Event], None]]) -> Callable[[Event], None] | None:
    if len(listeners) < 2:
        return listeners[0] if listeners else None

    def tell(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return tell
