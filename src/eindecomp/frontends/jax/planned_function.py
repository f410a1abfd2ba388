"""`plan.to_jax(mesh).jit(fn)`: a user's function, compiled with a plan's shardings."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import Literal
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from eindecomp.engines.jax.hlo import SCOPE, count_collectives
from eindecomp.errors import PlanError
from eindecomp.frontends.jax.arguments import arguments_of
from eindecomp.frontends.jax.importing import EquationViews, ReadFunction, read_function
from eindecomp.frontends.jax.local_equations import computed_locally
from eindecomp.frontends.jax.primitives import inner_jaxpr
from eindecomp.planner.comparison import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
        planned, moved = sum(self.planned.values()), count_collectives(executable).all
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
