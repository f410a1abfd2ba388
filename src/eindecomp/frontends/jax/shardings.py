"""`plan.to_jax()`: where the tensors of a plan lie, as shardings of JAX."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from eindecomp.engines.jax.engine import JaxEngine
from eindecomp.engines.jax.hlo import CompiledCollective, count_collectives
from eindecomp.engines.jax.layouts import mesh_of_devices
from eindecomp.errors import PlanError, suggest
from eindecomp.frontends.input_names import check_given
from eindecomp.frontends.jax.planned_function import PlannedFunction
from eindecomp.frontends.placements import partition_spec, said
from eindecomp.layout.cut import Cut
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
        return {name: found[0] for name, found in self.layouts.items()}

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
        specs = {name: own.spec for name, own in self.shardings.items()}
        operands = {
            name: {
                source: own.spec
                for source, own in zip(self.plan.graph[name].inputs, wanted, strict=True)
                if own is not None
            }
            for name, wanted in self.operands.items()
        }
        planned = program_of(self.plan).bytes_by_vertex
        return PlannedFunction(fn, specs, operands, self.mesh, planned)

    def put(self, arrays: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Put arrays on the devices, where the plan wants them."""
        check_given(self.plan.graph, arrays, {name: name for name in self.shardings})
        wanted = {name: self.shardings[name] for name in arrays}
        return jax.device_put(dict(arrays), wanted)


def to_jax(plan: Plan, mesh: Mesh | None = None) -> JaxPlan:
    """The shardings of a plan over a mesh, which is made of the first devices if none is given."""
    own = mesh_of_devices(plan.mesh) if mesh is None else _checked(plan, mesh)

    def sharding(name: str, cut: Cut) -> NamedSharding:
        spec = partition_spec(plan.mesh, cut, plan.graph[name].shape, name)
        return NamedSharding(own, PartitionSpec(*spec))

    return JaxPlan(plan, own, *said(plan, sharding))


def _checked(plan: Plan, mesh: Mesh) -> Mesh:
    """A mesh whose axes are the plan's, in the same order; others may have size 1."""
    given = {str(name): int(size) for name, size in mesh.shape.items()}
    wanted = dict(zip(plan.mesh.names, plan.mesh.sizes, strict=True))
    used = {name: size for name, size in given.items() if size > 1}
    if list(used.items()) != list(wanted.items()):
        raise PlanError(f"the plan is for a mesh of {wanted}, the mesh given is {given}")
    return mesh


def verify_program(plan: Plan, platform: str | None = None) -> Verification:
    """Compile a plan for its mesh, from shapes alone, and count what its collectives move."""
    prepared = JaxEngine(platform=platform).prepare(plan)
    return compare(program_of(plan).bytes_by_vertex, prepared.compiled.collectives)


def verify_function(
    plan: Plan, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Verification:
    """Compile a function as a plan says it is run, and count what its collectives move."""
    compiled = to_jax(plan).jit(fn).lower(*args, **kwargs).compile()
    return compare(program_of(plan).bytes_by_vertex, count_collectives(compiled))


def compare(planned: Mapping[str, int], collectives: Iterable[CompiledCollective]) -> Verification:
    """Collectives beside the bytes that are planned for each vertex."""
    counted: Counter[str] = Counter()
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in collectives:
        name = each.vertex or OTHER
        counted[name] += each.bytes
        kinds[name][each.kind] += each.times
    return Verification(
        tuple(
            Verified(name, planned.get(name, 0), counted[name], in_words(kinds[name]))
            for name in dict.fromkeys((*planned, *kinds))
        )
    )
