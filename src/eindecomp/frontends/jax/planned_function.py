"""`plan.to_jax(mesh).jit(fn)`: a user's function, compiled with a plan's shardings."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Literal
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from eindecomp.engines.jax.hlo import SCOPE, count_collectives
from eindecomp.errors import PlanError
from eindecomp.frontends.jax.arguments import arguments_of
from eindecomp.frontends.jax.importing import EquationViews, ReadFunction, read_function
from eindecomp.frontends.jax.registry import inner_jaxpr
from eindecomp.planner.comparison import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eindecomp.frontends.jax.importing import Way
    from eindecomp.frontends.views import Dim, View


@dataclass(slots=True, eq=False)
class PlannedFunction:
    """A function that runs as a plan says, compiled once for every shape of its arguments.

    It can be called as the function itself; `lower` gives what `jax.jit(fn).lower` gives.
    """

    fn: Callable[..., Any]
    shardings: Mapping[str, NamedSharding]
    operands: Mapping[str, Mapping[str, NamedSharding | None]]
    """How vertices want what they read."""
    mesh: Mesh
    planned: Mapping[str, int]
    """The bytes that the plan moves for each vertex."""
    _compiled: dict[Any, _Compiled] = field(default_factory=dict[Any, "_Compiled"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, where the plan leaves it."""
        compiled = self._for(args, kwargs)
        arrays = arguments_of(self.fn, args, kwargs).arrays
        placed = jax.device_put(list(arrays), list(compiled.inputs))
        run = compiled.jitted
        if not any(isinstance(array, Tracer) for array in arrays):
            if compiled.executable is None:
                compiled.executable = self.lower(*args, **kwargs).compile()
                self._tell(compiled.executable)
            run = compiled.executable
        return jax.tree.unflatten(compiled.read.tree, run(*placed))

    def _tell(self, executable: Any) -> None:
        """Warn where XLA moves more than the plan."""
        planned, moved = sum(self.planned.values()), count_collectives(executable)
        counted = sum(each.bytes for each in moved)
        if counted <= planned:
            return
        times = (
            f"{counted / planned:.1f} × the plan's bytes" if planned else "what the plan does not"
        )
        most: Counter[tuple[str, str]] = Counter()
        for each in moved:
            most[each.kind, each.vertex or OTHER] += each.bytes
        [((kind, vertex), _)] = most.most_common(1)
        warnings.warn(
            f"XLA moves {times} ({counted:,} for {planned:,}), most by {kind} of {vertex}: "
            "plan.verify_jax(fn, ...) tells of all",
            RuntimeWarning,
            stacklevel=3,
        )

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The function for arguments of these shapes, ready for `.compile()`."""
        compiled = self._for(args, kwargs)
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in compiled.read.arguments.arrays]
        return compiled.jitted.lower(*shapes)

    def _for(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Compiled:
        arguments = arguments_of(self.fn, args, kwargs)
        key = (arguments.names, arguments.static, *((a.shape, a.dtype) for a in arguments.arrays))
        if key not in self._compiled:
            self._compiled[key] = _compiled(read_function(self.fn, args, kwargs), self)
        return self._compiled[key]


@dataclass(slots=True)
class _Compiled:
    """A function for arguments of fixed shapes."""

    read: ReadFunction
    inputs: tuple[NamedSharding, ...]
    jitted: Any
    executable: Any = None
    """What XLA has made of it, once it was called."""


def _compiled(read: ReadFunction, of: PlannedFunction) -> _Compiled:
    # XLA completes what the plan says nothing of: axes of a mesh must leave that to it.
    types = (AxisType.Auto,) * len(of.mesh.axis_names)
    mesh = Mesh(of.mesh.devices, of.mesh.axis_names, axis_types=types)
    specs = {name: sharding.spec for name, sharding in of.shardings.items()}
    for vertex in (*read.graph.inputs, *read.graph.outputs):
        spec = specs.get(vertex.name, PartitionSpec())
        if len(spec) > len(vertex.shape):
            raise PlanError(f"the plan's {vertex.name} is not that of the function: {vertex.shape}")
    lacking = [v.name for v in read.graph.outputs if v.name not in specs]
    if lacking == [v.name for v in read.graph.outputs]:
        raise PlanError(f"the plan has no tensor {lacking[0]!r}: it is not one of this function")
    names = read.arguments.names
    inputs = tuple(NamedSharding(mesh, specs.get(n, PartitionSpec())) for n in names)
    outputs = [NamedSharding(mesh, specs[n]) if n in specs else None for n in read.outputs]
    wanted = {
        vertex: {name: own.spec for name, own in each.items() if own is not None}
        for vertex, each in of.operands.items()
    }
    places = _Constraints(read, specs, wanted, mesh)

    def run(*arrays: Any) -> list[Any]:
        return places.run(read.jaxpr, arrays, (0,))

    return _Compiled(read, inputs, jax.jit(run, in_shardings=inputs, out_shardings=outputs))


@dataclass(frozen=True, slots=True)
class _Constraints:
    """Puts what equations read and make where the plan has the vertices that they are."""

    read: ReadFunction
    specs: Mapping[str, PartitionSpec]
    operands: Mapping[str, Mapping[str, PartitionSpec]]
    mesh: Mesh

    def run(self, jaxpr: Any, arrays: Sequence[Any], way: Way) -> list[Any]:
        """The results of a jaxpr; the way to it and its equations is the one of `Reader`."""
        inner = getattr(jaxpr, "jaxpr", jaxpr)
        known: dict[Any, Any] = dict(
            zip(inner.constvars, getattr(jaxpr, "consts", ()), strict=True)
        )
        known.update(zip(inner.invars, arrays, strict=True))

        def value_of(atom: Any) -> Any:
            return atom.val if isinstance(atom, Literal) else known[atom]

        for place, eqn in enumerate(inner.eqns):
            values = [value_of(atom) for atom in eqn.invars]
            results = self._results((*way, place), eqn, values)
            known.update(zip(eqn.outvars, results, strict=True))
        return [value_of(atom) for atom in inner.outvars]

    def _results(self, way: Way, eqn: Any, values: list[Any]) -> list[Any]:
        inner = inner_jaxpr(eqn)
        if inner is not None:
            return self.run(inner, values, (*way, 0))
        if eqn.primitive.name == "scan":
            return self._scan(way, eqn, values)
        return self._bind(way, eqn, values)

    def _scan(self, way: Way, eqn: Any, values: list[Any]) -> list[Any]:
        """A scan step by step, as it is imported."""
        p = eqn.params
        consts, carried, length = int(p["num_consts"]), int(p["num_carry"]), int(p["length"])
        fixed, state = values[:consts], values[consts : consts + carried]
        given = values[consts + carried :]
        made: dict[int, list[Any]] = {}
        for call, step in enumerate(reversed(range(length)) if p["reverse"] else range(length)):
            here = [array[step] for array in given]
            results = self.run(p["jaxpr"], [*fixed, *state, *here], (*way, call))
            state, made[step] = results[:carried], results[carried:]
        kept = [
            jnp.stack([made[step][k] for step in range(length)])
            if length
            else jnp.zeros(var.aval.shape, var.aval.dtype)
            for k, var in enumerate(eqn.outvars[carried:])
        ]
        return [*state, *kept]

    def _bind(self, way: Way, eqn: Any, values: Sequence[Any]) -> list[Any]:
        """The results of an equation, constrained."""
        here = self.read.equations.get(way, EquationViews((), ()))
        names = [self.read.names.get(view.vertex, "") for view in here.results]
        known = next((name for name in names if name in self.specs), "")
        wanted = self.operands.get(known, {})
        params = eqn.primitive.get_bind_params(eqn.params)
        reads = [self._seen_in(view, wanted) for view in here.operands]
        results = [self._seen_in(view, self.specs) for view in here.results]
        first = next((spec for spec in results if spec is not None), None)
        local = computed_locally(eqn, first, reads, self.mesh)
        with jax.named_scope(SCOPE + known if known else eqn.primitive.name):
            if local is not None:
                made = local(*values)
            else:
                made = eqn.primitive.bind(*self._placed(values, here.operands, wanted), **params)
            made = list(made) if eqn.primitive.multiple_results else [made]
            return self._placed(made, here.results, self.specs)

    def _seen_in(self, view: View, specs: Mapping[str, PartitionSpec]) -> PartitionSpec | None:
        """Where the plan has the vertex of a view, as the view shows it."""
        spec = specs.get(self.read.names.get(view.vertex, ""))
        return None if spec is None or view.number is not None else _seen(view, spec)

    def _placed(
        self, values: Sequence[Any], views: Sequence[View], specs: Mapping[str, PartitionSpec]
    ) -> list[Any]:
        """Values that are views of vertices, where those lie."""
        found = [*values]
        for k, view in enumerate(views):
            spec = self._seen_in(view, specs)
            if spec is not None:
                sharding = NamedSharding(self.mesh, spec)
                found[k] = jax.lax.with_sharding_constraint(found[k], sharding)
        return found


def _seen(view: View, spec: PartitionSpec) -> PartitionSpec:
    """How a vertex's sharding looks from a view of it: free where that cannot be said."""
    own = (*spec, *(None,) * (len(view.axes) - len(spec)))
    return PartitionSpec(*(_of_dim(dim, own) for dim in view.dims))


def _of_dim(dim: Dim, own: Sequence[Any]) -> Any:
    if any(factor.axis is None for factor in dim):
        return PartitionSpec.UNCONSTRAINED
    if not dim:
        return None
    cuts = [own[factor.axis or 0] for factor in dim]
    inner = any(cut is not None for cut in cuts[1:])
    return PartitionSpec.UNCONSTRAINED if inner else cuts[0]


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

    `wanted` is where the plan wants the operands, as far as it says. XLA's partitioner has no rule
    for `top_k` along other dimensions: where the plan cuts only those, devices need nothing of each
    other. On CPUs it reduces partial products to all devices, of which each keeps its part: they
    are scattered instead.
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
