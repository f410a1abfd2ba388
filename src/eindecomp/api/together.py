"""`plan_together`: one plan for all ranks of a job, made by one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eindecomp.api.compile import engine_of
from eindecomp.engines.ranks import Alone, ranks_of
from eindecomp.errors import EinDecompError, PlanError
from eindecomp.store.plan_file import from_json, to_json

if TYPE_CHECKING:
    from eindecomp.engines.engine import Engine
    from eindecomp.planner.plan import Plan

_FAILED = b"failed: "


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
    if isinstance(ranks, Alone):
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
