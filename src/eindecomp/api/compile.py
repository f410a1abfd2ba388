"""`compile`: make a plan ready on an engine, to run it again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.engines.engine import Engine, find_engine
from eindecomp.engines.executable import Executable
from eindecomp.errors import InputError
from eindecomp.planner.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping


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
