"""`plan.to_jax()`: where the tensors of a plan lie, as shardings of JAX, and functions run so."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from eindecomp.engines.jax.engine import JaxEngine
from eindecomp.engines.jax.hlo import SCOPE, CompiledCollective, count_collectives
from eindecomp.engines.jax.layouts import mesh_of_devices
from eindecomp.errors import PlanError, suggest
from eindecomp.frontends.draft import Dim, View
from eindecomp.frontends.input_names import check_given
from eindecomp.frontends.jax.arguments import Arguments, Kwargs, arguments_of
from eindecomp.frontends.jax.importing import ReadFunction, Way, read_function, walk_jaxpr
from eindecomp.frontends.jax.local_equations import computed_locally
from eindecomp.frontends.jax.primitives.control import unrolled
from eindecomp.frontends.jax.registry import inner_jaxpr
from eindecomp.frontends.placements import partition_spec, said
from eindecomp.layout.cut import Cut, pending_in
from eindecomp.planner.comparison import OTHER, Verification, Verified, in_words
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.make import program_of


@dataclass(frozen=True)
class JaxPlan:
    """The sharding of every tensor that a plan names, over a mesh of its axes."""

    plan: Plan
    mesh: Mesh
    layouts: Mapping[str, tuple[NamedSharding, ...]]
    """Of every input and result: where it lies, then the layouts it is copied to."""
    operands: Mapping[str, tuple[NamedSharding | None, ...]]
    """How each vertex wants its operands, None for one whose elements are never read."""

    @cached_property
    def shardings(self) -> dict[str, NamedSharding]:
        """Where inputs lie, or are wanted, and where results are left."""
        return {name: own[0] for name, own in self.layouts.items()}

    @property
    def inputs(self) -> dict[str, NamedSharding]:
        """Where inputs lie, as `in_shardings` of `jax.jit` takes them."""
        return {each.name: self.shardings[each.name] for each in self.plan.graph.inputs}

    @property
    def outputs(self) -> dict[str, NamedSharding]:
        """Where outputs are left, as `out_shardings` of `jax.jit` takes them; fills nowhere."""
        names = (each.name for each in self.plan.graph.outputs)
        return {name: self.shardings[name] for name in names if name in self.shardings}

    def out_sharding(self, vertex: str) -> NamedSharding:
        """Where the result of a vertex is left, as contractions in explicit mode must be told."""
        if vertex not in self.plan.decisions:
            known = suggest(vertex, self.plan.decisions)
            raise PlanError(f"the plan computes no vertex {vertex!r}{known}")
        return self.shardings[vertex]

    def jit(self, fn: Callable[..., Any]) -> PlannedFunction:
        """The function that the plan's graph was imported from, run as the plan says.

        Its arguments and results lie where the plan has them, and so does whatever the plan has a
        name for in between. Where XLA moves more than the plan, the first call warns.
        """
        return PlannedFunction(fn, self)

    def wanted_by(self, vertex: str) -> dict[str, NamedSharding]:
        """Where a vertex wants what it reads, by name."""
        if vertex not in self.operands:
            return {}
        pairs = zip(self.plan.graph[vertex].inputs, self.operands[vertex], strict=True)
        return {source: own for source, own in pairs if own is not None}

    def put(self, arrays: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Put arrays on the devices, where the plan wants them."""
        check_given(self.plan.graph, arrays, {name: name for name in self.shardings})
        return jax.device_put(dict(arrays), {name: self.shardings[name] for name in arrays})


def to_jax(plan: Plan, mesh: Mesh | None = None) -> JaxPlan:
    """The shardings of a plan over a mesh, which is made of the first devices if none is given."""
    own = mesh_of_devices(plan.mesh) if mesh is None else _checked(plan, mesh)

    def sharding(name: str, cut: Cut) -> NamedSharding | None:
        if pending_in(cut) is not None:
            return None  # how XLA adds up parts is left to it
        spec = partition_spec(plan.mesh, cut, plan.graph[name].shape, name)
        return NamedSharding(own, PartitionSpec(*spec))

    return JaxPlan(plan, own, *said(plan, sharding))


def _checked(plan: Plan, mesh: Mesh) -> Mesh:
    """A mesh whose axes are the plan's, in the same order; others may have size 1."""
    given = {str(name): int(size) for name, size in mesh.shape.items()}
    wanted = plan.mesh.axes
    used = {name: size for name, size in given.items() if size > 1}
    if list(used.items()) != list(wanted.items()):
        raise PlanError(f"the plan is for a mesh of {wanted}, the mesh given is {given}")
    return mesh


@dataclass(slots=True, eq=False)
class PlannedFunction:
    """A function that runs as a plan says, compiled once for every shape of its arguments.

    It can be called as the function itself; `lower` gives what `jax.jit(fn).lower` gives.
    """

    fn: Callable[..., Any]
    placed: JaxPlan
    _compiled: dict[Any, _Compiled] = field(default_factory=dict[Any, "_Compiled"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns, where the plan leaves it."""
        arguments = arguments_of(self.fn, args, kwargs)
        compiled, arrays = self._for(arguments, args, kwargs), arguments.arrays
        placed = jax.device_put(list(arrays), compiled.inputs)
        run = compiled.jitted
        if not any(isinstance(array, Tracer) for array in arrays):
            if compiled.executable is None:
                compiled.executable = self.lower(*args, **kwargs).compile()
                self._tell(compiled.executable)
            run = compiled.executable
        return jax.tree.unflatten(compiled.read.tree, run(*placed))

    def _tell(self, executable: Any) -> None:
        """Warn where XLA moves more than the plan."""
        planned = sum(program_of(self.placed.plan, turns="none").bytes_by_vertex.values())
        moved = count_collectives(executable)
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
        compiled = self._for(arguments_of(self.fn, args, kwargs), args, kwargs)
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in compiled.read.arguments.arrays]
        return compiled.jitted.lower(*shapes)

    def _for(self, arguments: Arguments, args: tuple[Any, ...], kwargs: Kwargs) -> _Compiled:
        key = (arguments.names, arguments.static, *((a.shape, a.dtype) for a in arguments.arrays))
        if key not in self._compiled:
            self._compiled[key] = _Compiled(read_function(self.fn, args, kwargs), self.placed)
        return self._compiled[key]


class _Compiled:
    """A function for arguments of fixed shapes.

    What its equations read and make is put where the plan has the vertices that they are.
    """

    def __init__(self, read: ReadFunction, placed: JaxPlan) -> None:
        shardings, mesh = placed.shardings, placed.mesh
        for each in (*read.graph.inputs, *read.graph.outputs):
            known = shardings.get(each.name)
            if known is not None and len(known.spec) > len(each.shape):
                raise PlanError(f"the plan's {each.name} is not that of the function: {each.shape}")
        names = [vertex.name for vertex in read.graph.outputs]
        if not any(name in shardings for name in names):
            raise PlanError(f"the plan has no tensor {names[0]!r}: it is not one of this function")
        # XLA completes what the plan says nothing of: axes of a mesh must leave that to it.
        types = (AxisType.Auto,) * len(mesh.axis_names)
        self.mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=types)
        self.read, self.placed = read, placed
        given = [shardings[n].spec if n in shardings else None for n in read.arguments.names]
        self.inputs = [NamedSharding(self.mesh, spec or PartitionSpec()) for spec in given]
        outputs = [
            NamedSharding(self.mesh, shardings[n].spec) if n in shardings else None
            for n in read.outputs
        ]

        def run(*arrays: Any) -> list[Any]:
            return self.run(read.jaxpr, arrays, (0,))

        self.jitted: Any = jax.jit(run, in_shardings=tuple(self.inputs), out_shardings=outputs)
        self.executable: Any = None
        """What XLA has made of it, once it was called."""

    def run(self, jaxpr: Any, arrays: Sequence[Any], way: Way) -> list[Any]:
        """The results of a jaxpr; the way to it and its equations is the one of `Reader`."""

        def results(place: int, eqn: Any, values: list[Any]) -> list[Any]:
            here, inner = (*way, place), inner_jaxpr(eqn)
            if inner is not None:
                return self.run(inner, values, (*here, 0))
            compute = self._scan if eqn.primitive.name == "scan" else self._bind
            return compute(here, eqn, values)

        return walk_jaxpr(jaxpr, arrays, lambda value: value, results)

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

    def _bind(self, way: Way, eqn: Any, values: list[Any]) -> list[Any]:
        """The results of an equation, constrained."""
        of_operands, of_results = self.read.equations.get(way, ((), ()))
        names = [self.read.names.get(view.vertex, "") for view in of_results]
        known = next((name for name in names if name in self.placed.shardings), "")
        wanted = self.placed.wanted_by(known)
        params = eqn.primitive.get_bind_params(eqn.params)
        reads = [self._seen_in(view, wanted) for view in of_operands]
        results = [self._seen_in(view, self.placed.shardings) for view in of_results]
        first = next((spec for spec in results if spec is not None), None)
        local = computed_locally(eqn, first, reads, self.mesh)
        with jax.named_scope(SCOPE + known if known else eqn.primitive.name):
            if local is not None:
                made = local(*values)
            else:
                made = eqn.primitive.bind(*self._constrained(values, reads), **params)
            made = list(made) if eqn.primitive.multiple_results else [made]
            return self._constrained(made, results)

    def _seen_in(self, view: View, shardings: Mapping[str, NamedSharding]) -> PartitionSpec | None:
        """Where the plan has the vertex of a view, as the view shows it: free where it cannot."""
        own = shardings.get(self.read.names.get(view.vertex, ""))
        if own is None or view.number is not None:
            return None
        return PartitionSpec(*(_of_dim(dim, tuple(own.spec)) for dim in view.dims))

    def _constrained(self, values: list[Any], specs: Sequence[PartitionSpec | None]) -> list[Any]:
        """Values that lie as the specs say; those that no spec is for stay as they are."""
        constrained = [*values]
        for k, spec in enumerate(specs):
            if spec is not None:
                sharding = NamedSharding(self.mesh, spec)
                constrained[k] = jax.lax.with_sharding_constraint(values[k], sharding)
        return constrained


def _of_dim(dim: Dim, own: Sequence[Any]) -> Any:
    """How a dimension of a view is cut whose vertex has its axes cut so."""
    if any(factor.axis is None for factor in dim):
        return PartitionSpec.UNCONSTRAINED
    if not dim:
        return None
    cuts = [own[factor.axis or 0] for factor in dim]
    inner = any(cut is not None for cut in cuts[1:])
    return PartitionSpec.UNCONSTRAINED if inner else cuts[0]


def verify_program(plan: Plan, platform: str | None = None) -> Verification:
    """Compile a plan for its mesh, from shapes alone, and count what its collectives move."""
    prepared = JaxEngine(platform=platform).prepare(plan)
    return compare(program_of(plan, turns="none").bytes_by_vertex, prepared.compiled.collectives)


def verify_function(
    plan: Plan, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs
) -> Verification:
    """Compile a function as a plan says it is run, and count what its collectives move."""
    compiled = to_jax(plan).jit(fn).lower(*args, **kwargs).compile()
    return compare(program_of(plan, turns="none").bytes_by_vertex, count_collectives(compiled))


def compare(planned: Mapping[str, int], collectives: Iterable[CompiledCollective]) -> Verification:
    """Collectives beside the bytes that are planned for each vertex."""
    counted: Counter[str] = Counter()
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in collectives:
        name = each.vertex or OTHER
        counted[name] += each.bytes
        kinds[name][each.kind] += each.times
    rows = (
        Verified(name, planned.get(name, 0), counted[name], in_words(kinds[name]))
        for name in dict.fromkeys((*planned, *kinds))
    )
    return Verification(tuple(rows))
