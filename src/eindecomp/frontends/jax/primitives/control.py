"""Loops whose length is known, branches, and primitives that change nothing a graph knows of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from eindecomp.frontends.draft import View
from eindecomp.frontends.jax.primitives.elementwise import case_at
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations import stacked

MAX_STEPS = 10_000


@primitive(
    "stop_gradient", "copy", "sharding_constraint", "reshard", "mesh_cast",
    "layout_constraint", "optimization_barrier", "device_put", "name", "pvary", "pcast",
)  # fmt: skip
def _unchanged(_op: Equation, *arrays: View) -> list[View]:
    return [*arrays]


@primitive("debug_callback", "debug_print")
def _debug(_op: Equation, *_: View) -> list[View]:
    return []


@primitive("platform_index")
def _platform_index(op: Equation, *_: View) -> View:
    """The branch for whatever platform is not named, or the last."""
    platforms = op.params["platforms"]
    index = next((k for k, names in enumerate(platforms) if names is None), len(platforms) - 1)
    return op.trace.number(index, op.dtype)


@primitive("scan")
def _scan(op: Equation, *arrays: View) -> list[View]:
    def step(call: int, arrays: list[View]) -> list[View]:
        del call
        return op.inline(op.params["jaxpr"], arrays)

    state, made = unrolled(op.params, arrays, step, lambda array, k: op.trace.index(array, 0, k))
    kept = [
        stacked(op.trace, parts, 0) if parts else op.trace.number(0, result.dtype, result.shape)
        for parts, result in zip(made, op.results[len(state) :], strict=True)
    ]
    return [*state, *kept]


Array = TypeVar("Array")


def unrolled(
    params: Mapping[str, Any],
    arrays: Sequence[Array],
    run: Callable[[int, list[Array]], list[Array]],
    at: Callable[[Array, int], Array],
) -> tuple[list[Array], list[list[Array]]]:
    """What a scan carries to its end, and what its steps make, as lists in the order of steps.

    `run` computes a step, given its number; `at` is what an array holds for a step.
    """
    consts, carried, length = (int(params[k]) for k in ("num_consts", "num_carry", "length"))
    fixed, state = [*arrays[:consts]], [*arrays[consts : consts + carried]]
    made: dict[int, list[Array]] = {}
    steps = range(length)
    for count, step in enumerate(reversed(steps) if params["reverse"] else steps):
        here = [at(array, step) for array in arrays[consts + carried :]]
        results = run(count, [*fixed, *state, *here])
        state, made[step] = results[:carried], results[carried:]
    kept = len(params["jaxpr"].out_avals) - carried
    return state, [[made[step][k] for step in steps] for k in range(kept)]


@primitive("while")
def _while(op: Equation, *arrays: View) -> list[View]:
    p = op.params
    ahead, body = int(p["cond_nconsts"]), int(p["body_nconsts"])
    of_test, of_body = arrays[:ahead], arrays[ahead : ahead + body]
    state = [*arrays[ahead + body :]]
    steps = 0
    while True:
        (test,) = op.inline(p["cond_jaxpr"], [*of_test, *state])
        if test.number is None:
            op.refuse("how often it runs depends on values; a loop of known length, or a scan, is")
        if not test.number:
            return state
        steps += 1
        if steps > MAX_STEPS:
            op.refuse(f"it runs more than {MAX_STEPS} times")
        state = op.inline(p["body_jaxpr"], [*of_body, *state])


@primitive("cond")
def _cond(op: Equation, which: View, *arrays: View) -> list[View]:
    branches = op.params["branches"]
    if which.number is not None:
        index = min(max(int(which.number.real), 0), len(branches) - 1)
        return op.inline(branches[index], arrays)
    made = [op.inline(branch, arrays) for branch in branches]
    return [
        op.trace.map(case_at(len(branches)), which, *cases, dtype=result.dtype)
        for cases, result in zip(zip(*made, strict=True), op.results, strict=True)
    ]
