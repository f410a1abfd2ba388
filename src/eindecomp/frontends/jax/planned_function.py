"""`plan.to_jax(mesh).jit(fn)`: a user's function, compiled with a plan's shardings."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Literal
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from eindecomp.engines.jax.hlo import SCOPE, count_collectives
from eindecomp.errors import PlanError
from eindecomp.frontends.jax.arguments import arguments_of
from eindecomp.frontends.jax.importing import ReadFunction, Way, read_function
from eindecomp.frontends.jax.primitives.contractions import product_symbols
from eindecomp.frontends.jax.primitives.control import unrolled
from eindecomp.frontends.jax.registry import inner_jaxpr
from eindecomp.frontends.record import Dim, View
from eindecomp.planner.comparison import OTHER


@dataclass(slots=True, eq=False)
class PlannedFunction:
    """A function that runs as a plan says, compiled once for every shape of its arguments.

    It can be called as the function itself; `lower` gives what `jax.jit(fn).lower` gives.
    """

    fn: Callable[..., Any]
    specs: Mapping[str, PartitionSpec]
    """Where tensors lie."""
    operands: Mapping[str, Mapping[str, PartitionSpec]]
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
            read = read_function(self.fn, args, kwargs)
            self._compiled[key] = _Compiled(read, self.specs, self.operands, self.mesh)
        return self._compiled[key]


class _Compiled:
    """A function for arguments of fixed shapes.

    What its equations read and make is put where the plan has the vertices that they are.
    """

    def __init__(
        self,
        read: ReadFunction,
        specs: Mapping[str, PartitionSpec],
        operands: Mapping[str, Mapping[str, PartitionSpec]],
        mesh: Mesh,
    ) -> None:
        for vertex in (*read.graph.inputs, *read.graph.outputs):
            if len(specs.get(vertex.name, ())) > len(vertex.shape):
                raise PlanError(
                    f"the plan's {vertex.name} is not that of the function: {vertex.shape}"
                )
        names = [vertex.name for vertex in read.graph.outputs]
        if not any(name in specs for name in names):
            raise PlanError(f"the plan has no tensor {names[0]!r}: it is not one of this function")
        # XLA completes what the plan says nothing of: axes of a mesh must leave that to it.
        types = (AxisType.Auto,) * len(mesh.axis_names)
        self.mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=types)
        self.read, self.specs, self.operands = read, specs, operands
        self.inputs = tuple(
            NamedSharding(self.mesh, specs.get(name, PartitionSpec()))
            for name in read.arguments.names
        )
        outputs = [NamedSharding(self.mesh, specs[n]) if n in specs else None for n in read.outputs]

        def run(*arrays: Any) -> list[Any]:
            return self.run(read.jaxpr, arrays, (0,))

        self.jitted: Any = jax.jit(run, in_shardings=self.inputs, out_shardings=outputs)
        self.executable: Any = None
        """What XLA has made of it, once it was called."""

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

        def step(call: int, arrays: list[Any]) -> list[Any]:
            return self.run(eqn.params["jaxpr"], arrays, (*way, call))

        state, made = unrolled(eqn.params, values, step, lambda array, k: array[k])
        kept = [
            jnp.stack(parts) if parts else jnp.zeros(var.aval.shape, var.aval.dtype)
            for parts, var in zip(made, eqn.outvars[len(state) :], strict=True)
        ]
        return [*state, *kept]

    def _bind(self, way: Way, eqn: Any, values: Sequence[Any]) -> list[Any]:
        """The results of an equation, constrained."""
        of_operands, of_results = self.read.equations.get(way, ((), ()))
        names = [self.read.names.get(view.vertex, "") for view in of_results]
        known = next((name for name in names if name in self.specs), "")
        wanted = self.operands.get(known, {})
        params = eqn.primitive.get_bind_params(eqn.params)
        reads = [self._seen_in(view, wanted) for view in of_operands]
        results = [self._seen_in(view, self.specs) for view in of_results]
        first = next((spec for spec in results if spec is not None), None)
        local = computed_locally(eqn, first, reads, self.mesh)
        with jax.named_scope(SCOPE + known if known else eqn.primitive.name):
            if local is not None:
                made = local(*values)
            else:
                made = eqn.primitive.bind(*self._placed(values, of_operands, wanted), **params)
            made = list(made) if eqn.primitive.multiple_results else [made]
            return self._placed(made, of_results, self.specs)

    def _seen_in(self, view: View, specs: Mapping[str, PartitionSpec]) -> PartitionSpec | None:
        """Where the plan has the vertex of a view, as the view shows it: free where it cannot."""
        spec = specs.get(self.read.names.get(view.vertex, ""))
        if spec is None or view.number is not None:
            return None
        own = (*spec, *(None,) * (len(view.axes) - len(spec)))
        return PartitionSpec(*(_of_dim(dim, own) for dim in view.dims))

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


def _of_dim(dim: Dim, own: Sequence[Any]) -> Any:
    """How a dimension of a view is cut whose vertex has its axes cut so."""
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
            pairs = zip(wanted, eqn.invars, strict=True)
            operands = [_cuts(own or (), var) for own, var in pairs]
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
    cuts: list[Axes] = []
    for each in spec:
        if each is None or each is PartitionSpec.UNCONSTRAINED:
            cuts.append(())
        else:
            cuts.append((each,) if isinstance(each, str) else tuple(each))
    return tuple(cuts + [()] * (len(var.aval.shape) - len(cuts)))


def _scattered(
    params: Mapping[str, Any], operands: Sequence[Cuts], result: Cuts
) -> _Scattered | None:
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
