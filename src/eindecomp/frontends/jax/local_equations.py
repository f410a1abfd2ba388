"""Equations that devices compute on their own parts, where XLA's partitioner would move more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple, cast

import jax
from jax.sharding import Mesh, PartitionSpec

from eindecomp.frontends.jax.primitives.contractions import product_symbols

Axes = tuple[str, ...]
Cuts = tuple[Axes, ...]
"""The axes of the mesh that cut each dimension of an array."""


class _Scattered(NamedTuple):
    """Axes over which partial results are reduced, and the dimension along which they scatter."""

    axes: Axes
    place: int


def computed_locally(
    eqn: Any, spec: PartitionSpec | None, wanted: Sequence[PartitionSpec | None], mesh: Mesh
) -> Callable[..., Any] | None:
    """A function of an equation's operands whose results lie as `spec` says, if parts will do.

    `wanted` is where the plan wants the operands, as far as it says. XLA's partitioner has no rule
    for `top_k` along other dimensions: where the plan cuts only those, devices need nothing of each
    other. On CPUs it reduces partial products to all devices, of which each keeps its part: they
    are scattered instead.
    """
    if spec is None or PartitionSpec.UNCONSTRAINED in spec:
        return None
    params = dict(eqn.primitive.get_bind_params(eqn.params))
    result = _cuts(spec, eqn.outvars[0])
    scattered: _Scattered | None = None
    match eqn.primitive.name:
        case "sort" | "top_k":
            own = [*result]
            own[params.get("dimension", params.get("axis", -1))] = ()  # each device cuts it then
            result = tuple(own)
            operands = [result] * len(eqn.invars)
            if not any(result):
                return None
        case "dot_general" | "reduce_sum" if all(each is not None for each in wanted):
            operands = [_cuts(own or (), var) for own, var in zip(wanted, eqn.invars, strict=True)]
            scattered = _scattered(params, operands, result)
            if scattered is None:
                return None
        case _:
            return None
    for cuts, var in zip((result, *operands), (eqn.outvars[0], *eqn.invars), strict=True):
        parts = (prod(mesh.shape[axis] for axis in own) for own in cuts)
        if any(size % count for size, count in zip(var.aval.shape, parts, strict=True)):
            return None

    def run(*arrays: Any) -> Any:
        made = eqn.primitive.bind(*arrays, **params)
        if scattered is None:
            return made
        scatter: Any = cast("Any", jax.lax).psum_scatter
        return scatter(made, scattered.axes, scatter_dimension=scattered.place, tiled=True)

    out = PartitionSpec(*result)
    return jax.shard_map(
        run,
        mesh=mesh,
        in_specs=tuple(PartitionSpec(*own) for own in operands),
        out_specs=[out] * len(eqn.outvars) if eqn.primitive.multiple_results else out,
        check_vma=False,
    )


def _cuts(spec: Iterable[Any], var: Any) -> Cuts:
    """The axes that cut each dimension; those that the plan leaves free are not cut."""
    free = (None, PartitionSpec.UNCONSTRAINED)
    given = [() if each in free else each for each in spec]
    cuts: list[Axes] = [(each,) if isinstance(each, str) else tuple(each) for each in given]
    return tuple(cuts + [()] * (len(var.aval.shape) - len(cuts)))


def _scattered(params: dict[str, Any], operands: Sequence[Cuts], result: Cuts) -> _Scattered | None:
    """How partial sums along one cut dimension are scattered over another, if it is that simple."""
    if len(operands) == 1:
        symbols = [tuple(range(len(operands[0])))]
        output = [k for k in symbols[0] if k not in params["axes"]]
    else:
        *symbols, output = product_symbols(params["dimension_numbers"], *map(len, operands))
    cut_by: dict[int, Axes] = {}
    for own, cuts in zip(symbols, operands, strict=True):
        for symbol, axes in zip(own, cuts, strict=True):
            if cut_by.setdefault(symbol, axes) != axes:
                return None
    summed = [axes for symbol, axes in cut_by.items() if symbol not in output and axes]
    made = [cut_by[symbol] for symbol in output]
    places = [d for d, (own, end) in enumerate(zip(made, result, strict=True)) if own != end]
    if len(summed) != 1 or len(places) != 1:
        return None
    used = [axis for own in (*made, *summed) for axis in own]
    [place] = places
    if len({*used}) != len(used) or result[place] != made[place] + summed[0]:
        return None
    return _Scattered(summed[0], place)
