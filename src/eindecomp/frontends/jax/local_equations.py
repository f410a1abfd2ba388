"""Equations that each device computes of its own parts, where XLA would move more than is planned.

XLA's partitioner has no rule for `top_k` along other dimensions: where the plan cuts only those,
devices need nothing of each other. On CPUs it reduces partial products to all devices, of which
each keeps its part: they are scattered instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, cast

import jax
from jax.sharding import PartitionSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jax.sharding import Mesh

Axes = tuple[str, ...]
Cuts = tuple[Axes, ...]
"""The axes of the mesh that cut each dimension of an array."""
Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Local:
    """How devices compute an equation: the axes of each operand's dimensions, and what is done."""

    operands: Sequence[Cuts]
    result: Cuts
    params: Mapping[str, Any]
    summed: Axes = ()
    """The axes over which partial results are reduced."""
    place: int = 0
    """The dimension along which they are scattered then."""


def computed_locally(
    eqn: Any, spec: PartitionSpec | None, wanted: Sequence[PartitionSpec | None], mesh: Mesh
) -> Callable[..., Any] | None:
    """A function of an equation's operands whose results lie as `spec` says, if parts will do.

    `wanted` is where the plan wants the operands, as far as it says.
    """
    if spec is None or PartitionSpec.UNCONSTRAINED in spec:
        return None
    result = _cuts(spec, eqn.outvars[0].aval)
    found = _local(eqn, result, wanted)
    if found is None or not _divides(mesh, found.result, eqn.outvars[0].aval):
        return None
    for own, var in zip(found.operands, eqn.invars, strict=True):
        if not _divides(mesh, own, var.aval):
            return None

    def run(*arrays: Any) -> Any:
        made = eqn.primitive.bind(*arrays, **found.params)
        if found.summed:
            made = cast("Any", jax.lax).psum_scatter(
                made, found.summed, scatter_dimension=found.place, tiled=True
            )
        return made

    several = eqn.primitive.multiple_results
    own = PartitionSpec(*found.result)
    return jax.shard_map(
        run,
        mesh=mesh,
        in_specs=tuple(PartitionSpec(*own) for own in found.operands),
        out_specs=[own] * len(eqn.outvars) if several else own,
        check_vma=False,
    )


def _local(eqn: Any, result: Cuts, wanted: Sequence[PartitionSpec | None]) -> _Local | None:
    params = dict(eqn.primitive.get_bind_params(eqn.params))
    match eqn.primitive.name:
        case "sort" | "top_k":
            own = [*result]
            own[params.get("dimension", params.get("axis", -1))] = ()  # each device cuts it then
            found = _Local([tuple(own)] * len(eqn.invars), tuple(own), params)
            return found if any(own) else None
        case "dot_general" | "reduce_sum" if all(each is not None for each in wanted):
            pairs = zip(wanted, eqn.invars, strict=True)
            operands = [_cuts(own or (), var.aval) for own, var in pairs]
            if len(operands) == 1:
                return _sum(params, operands[0], result)
            return _product(params, operands, result)
        case _:
            return None


def _cuts(spec: Iterable[Any], aval: Any) -> Cuts:
    """The axes that cut each dimension; those that the plan leaves free are not cut."""
    free = PartitionSpec.UNCONSTRAINED
    cuts: list[Axes] = [() if each is free else _axes(each) for each in spec]
    return tuple(cuts + [()] * (len(aval.shape) - len(cuts)))


def _divides(mesh: Mesh, cuts: Cuts, aval: Any) -> bool:
    parts = (prod(mesh.shape[axis] for axis in own) for own in cuts)
    return all(size % count == 0 for size, count in zip(aval.shape, parts, strict=True))


def _axes(given: str | Axes | None) -> Axes:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _product(params: Mapping[str, Any], operands: Sequence[Cuts], result: Cuts) -> _Local | None:
    """A product whose partial sums, along one cut dimension, are scattered over another."""
    numbers: tuple[tuple[Places, Places], tuple[Places, Places]] = params["dimension_numbers"]
    (left, right), (left_batch, right_batch) = numbers
    lhs, rhs = operands
    if [lhs[a] for a in (*left, *left_batch)] != [rhs[b] for b in (*right, *right_batch)]:
        return None
    made = [lhs[a] for a in left_batch]
    made += [own for a, own in enumerate(lhs) if a not in (*left, *left_batch)]
    made += [own for b, own in enumerate(rhs) if b not in (*right, *right_batch)]
    return _scattered(params, operands, [lhs[a] for a in left], made, result)


def _sum(params: Mapping[str, Any], operand: Cuts, result: Cuts) -> _Local | None:
    """The same for the sum of one array."""
    axes: Places = params["axes"]
    made = [own for d, own in enumerate(operand) if d not in axes]
    return _scattered(params, [operand], [operand[d] for d in axes], made, result)


def _scattered(
    params: Mapping[str, Any],
    operands: Sequence[Cuts],
    gone: Sequence[Axes],
    made: Sequence[Axes],
    result: Cuts,
) -> _Local | None:
    """Partial results that lie as `made`, of sums over what is cut as `gone`, brought home."""
    summed = [own for own in gone if own]
    places = [d for d, (own, end) in enumerate(zip(made, result, strict=True)) if own != end]
    if len(summed) != 1 or len(places) != 1:
        return None
    used = [axis for own in (*made, *summed) for axis in own]
    place = places[0]
    if len({*used}) != len(used) or result[place] != made[place] + summed[0]:
        return None
    return _Local(operands, result, params, summed[0], place)
