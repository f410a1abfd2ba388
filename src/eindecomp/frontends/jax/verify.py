"""Counts what a plan's collectives move once XLA has compiled it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from eindecomp.engines.jax.engine import JaxEngine
from eindecomp.engines.jax.hlo import count_collectives
from eindecomp.frontends.jax.shardings import to_jax
from eindecomp.planner.comparison import OTHER, Verification, Verified, in_words
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.engines.jax.hlo import Collectives
    from eindecomp.planner.plan import Plan


def verify(plan: Plan, platform: str | None = None) -> Verification:
    """Compile a plan for its mesh, from shapes alone, and count what its collectives move."""
    prepared = JaxEngine(platform=platform).prepare(plan)
    return compare(program_of(plan).bytes_by_vertex, prepared.compiled.collectives)


def verify_function(
    plan: Plan, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Verification:
    """Compile a function as a plan says it is run, and count what its collectives move."""
    compiled = to_jax(plan).jit(fn).lower(*args, **kwargs).compile()
    return compare(program_of(plan).bytes_by_vertex, count_collectives(compiled))


def compare(planned: Mapping[str, int], collectives: Collectives) -> Verification:
    """Collectives beside the bytes that are planned for each vertex."""
    counted: Counter[str] = Counter()
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in collectives.all:
        name = each.vertex or OTHER
        counted[name] += each.bytes
        kinds[name][each.kind] += each.times
    return Verification(
        tuple(
            Verified(name, planned.get(name, 0), counted[name], in_words(kinds[name]))
            for name in dict.fromkeys((*planned, *kinds))
        )
    )
