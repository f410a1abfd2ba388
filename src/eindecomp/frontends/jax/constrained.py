"""Evaluating a jaxpr with a say about every equation's results, jaxprs inside it in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jax.numpy as jnp
from jax.extend.core import Literal

from eindecomp.frontends.jax.primitives import inner_jaxpr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.jax.reader import Way


class Places(Protocol):
    """What is done with the results of equations."""

    def bind(self, way: Way, eqn: Any, values: Sequence[Any]) -> list[Any]:
        """The results of an equation of values."""
        ...


def evaluate_jaxpr(jaxpr: Any, arrays: Sequence[Any], places: Places) -> list[Any]:
    """The results of a closed jaxpr; `places` gets the way to each equation, as `Reader` has it."""
    return _run(jaxpr, arrays, places, (0,))


def _run(jaxpr: Any, arrays: Sequence[Any], places: Places, way: Way) -> list[Any]:
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    known: dict[Any, Any] = dict(zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=True))
    known.update(zip(inner.invars, arrays, strict=True))

    def value_of(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for place, eqn in enumerate(inner.eqns):
        values = [value_of(atom) for atom in eqn.invars]
        results = _results(eqn, values, places, (*way, place))
        known.update(zip(eqn.outvars, results, strict=True))
    return [value_of(atom) for atom in inner.outvars]


def _results(eqn: Any, values: list[Any], places: Places, way: Way) -> list[Any]:
    inner = inner_jaxpr(eqn)
    if inner is not None:
        return _run(inner, values, places, (*way, 0))
    if eqn.primitive.name == "scan":
        return _scan(eqn, values, places, way)
    return places.bind(way, eqn, values)


def _scan(eqn: Any, values: list[Any], places: Places, way: Way) -> list[Any]:
    """A scan step by step, as it is imported."""
    p = eqn.params
    consts, carried, length = int(p["num_consts"]), int(p["num_carry"]), int(p["length"])
    fixed, state = values[:consts], values[consts : consts + carried]
    given = values[consts + carried :]
    made: dict[int, list[Any]] = {}
    for call, step in enumerate(reversed(range(length)) if p["reverse"] else range(length)):
        here = [array[step] for array in given]
        results = _run(p["jaxpr"], [*fixed, *state, *here], places, (*way, call))
        state, made[step] = results[:carried], results[carried:]
    kept = [
        jnp.stack([made[step][k] for step in range(length)])
        if length
        else jnp.zeros(var.aval.shape, var.aval.dtype)
        for k, var in enumerate(eqn.outvars[carried:])
    ]
    return [*state, *kept]
