"""`compile` makes a plan ready on an engine; `plan_together` makes one plan for all its ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eindecomp.engines.engine import Engine, find_engine, ranks_of
from eindecomp.engines.executable import Executable
from eindecomp.errors import EinDecompError, InputError, PlanError
from eindecomp.planner.plan import Plan
from eindecomp.store.plan_file import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

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
