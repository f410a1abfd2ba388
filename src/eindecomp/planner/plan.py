"""`Plan`: how every vertex of a graph is cut, where its results lie, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from eindecomp.above import from_above
from eindecomp.errors import PlanError
from eindecomp.planner.costs.bytes_moved import PriceInBytes
from eindecomp.planner.costs.cost import Cost, decided_cost
from eindecomp.planner.costs.machine import machine_of
from eindecomp.planner.costs.seconds import PriceInSeconds

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.comparison import Comparison
    from eindecomp.planner.costs.cost import Number
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.costs.objectives import Objective
    from eindecomp.planner.space.decision import Decision, Layouts
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.strategy import GivenStrategy, StrategyForm
    from eindecomp.planner.verification import Verification


T = TypeVar("T")
NESTINGS = ("any", "mesh")


class Deferred(Mapping[str, T]):
    """Decisions or layouts that are made when they are first accessed.

    The paper's objective does not need mesh axes, and choosing them takes longer than planning.
    """

    def __init__(self, decide: Callable[[], Mapping[str, T]]) -> None:
        self._decide = decide

    @cached_property
    def _made(self) -> Mapping[str, T]:
        return self._decide()

    def __getitem__(self, name: str) -> T:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Chosen:
    """What planning chooses: the part of a plan that the options do not give."""

    parts: dict[str, dict[str, int]]
    decisions: Mapping[str, Decision]
    given: Mapping[str, Layouts]
    costs: Cost
    bound: float
    method: str


@dataclass(frozen=True, slots=True)
class Orders:
    """The contraction orders among which that of a plan was chosen."""

    considered: int
    """How many there are; the bound of the plan holds for all of them."""
    complete: bool
    """Whether these are all orders within the limit on work."""
    most: Mapping[str, float] = field(default_factory=dict[str, float])
    """The most operations that fused vertices may take, where cutting them repeats some."""


def unproved(cost: float, bound: float) -> PlanError:
    """The error of solver "exact" where the best plan is not proved optimal."""
    return PlanError(
        f"no plan was proved optimal: the best one costs {cost}, the bound is {bound}; "
        "solver='auto' returns it"
    )


@dataclass(frozen=True)
class Plan:
    """A decision for every planned vertex of a graph, its cost, and a bound on any plan's cost.

    `graph` is the graph that was planned: the rewritten one, unless that was switched off.
    """

    graph: Graph
    mesh: Mesh
    objective: str | Objective
    inputs: str
    parts: Mapping[str, Mapping[str, int]]
    """Into how many pieces every vertex that is computed cuts each of its labels."""
    decisions: Mapping[str, Decision]
    """For the same vertices: the assignment of axes, the home and the second layout."""
    given: Mapping[str, Layouts]
    """The home and the second layout of inputs that have one: sharded, pinned or tied."""
    costs: Cost
    """By vertex and by edge: in elements (`bound`), bytes (`bytes`) or seconds (`time`)."""
    bound: Number
    """A proved lower bound on the cost of any plan.

    That is, of any plan on this mesh, with these restrictions, that divides every vertex among all
    devices, as far as its sizes allow, and keeps each tensor in at most two layouts; for objective
    `time`, also of any that computes the same piece on several devices.
    """
    strategy: StrategyForm | None = None
    pin: Mapping[str, Mapping[str, int | tuple[str, ...]]] = field(default_factory=dict[str, Any])
    """The layouts that were asked for: pieces or mesh axes for labels of inputs and results."""
    tie: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each tied input the result that becomes it in the next run: both have one home."""
    nesting: str = "any"
    """The orders in which the axes of a dimension may nest, of which the bound is true."""
    machine: Machine | None = None
    memory: int | None = None
    work: float | None = None
    """How many times the least operations contraction orders may take; None if none was chosen."""
    orders: Orders | None = None
    """Among which contraction orders that of the graph was chosen; None if it was not."""
    solver: str = "auto"
    method: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def devices(self) -> int:
        """How many devices it is for."""
        return self.mesh.devices

    @property
    def pieces(self) -> str:
        """The rule by which dimensions are cut into pieces: "balanced", "even" or "ceil"."""
        return self.mesh.pieces

    @property
    def cost(self) -> Number:
        """What it costs under its objective."""
        return self.costs.total

    @property
    def gap(self) -> float:
        """How far the cost can be above the optimum, relative to the cost."""
        return 0.0 if self.cost <= self.bound else float((self.cost - self.bound) / self.cost)

    @cached_property
    def traffic(self) -> Cost:
        """The bytes that move when the plan runs, whatever its objective."""
        return decided_cost(self.graph, PriceInBytes(self.mesh), self.decisions, self.given)

    def time_on(self, machine: Machine | str | Path) -> Cost:
        """The seconds that the plan takes on a machine, whatever its objective.

        >>> import eindecomp as ed
        >>> graph = ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z")
        >>> ed.plan(graph, 2).time_on("cpu-cluster").total > 0
        True
        """
        price = PriceInSeconds(self.mesh, machine_of(machine))
        return decided_cost(self.graph, price, self.decisions, self.given)

    def __str__(self) -> str:
        return from_above("show.explain").summary(self)

    def __repr__(self) -> str:
        asked = f"{len(self.parts)} vertices for {self.devices} devices"
        return f"<Plan of {asked}, {self.objective}: cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        return from_above("show.notebook").plan_html(self)

    def _repr_svg_(self) -> str | None:
        return from_above("show.notebook").plan_svg(self)

    def explain(self, width: int | None = None) -> str:
        """How vertices are cut, what moves where, what that costs, and the alternatives, as text.

        Lines are as wide as the terminal, or 120 characters, unless `width` is given.
        """
        return from_above("show.explain").explain(self, width)

    def compare(self, strategies: Mapping[str, GivenStrategy] | None = None) -> Comparison:
        """This plan against the strategies that apply to its graph, or against those given."""
        return from_above("show.compare").compare(self, strategies)

    def draw(
        self, path: str | Path | None = None, *, folded: bool = True, layout: str = "auto"
    ) -> Any:
        """A picture of the plan: a `Picture`, which notebooks show.

        Boxes are vertices with their cuts, lines are as thick as the bytes that move along them.
        It is written to `path` if given, an .svg, .dot or .gv file, or .png or .pdf where graphviz
        is there. Unless `folded` is false, repeated layers are drawn once. `layout` is "graphviz",
        "own", which needs nothing installed, or "auto".

        >>> import eindecomp as ed
        >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
        >>> ed.plan(graph, 2).draw(layout="own")
        Picture(title='1 vertex on 2 devices (axis0=2)')
        """
        return from_above("show.draw.picture").draw_plan(self, path, folded=folded, layout=layout)

    def draw_tiles(
        self, tensor: str, path: str | Path | None = None, *, layout: str | None = None
    ) -> Any:
        """The tiles of a tensor and the devices that hold them: a `TileGrid`.

        It prints as text, shows as a picture in notebooks, and is written to `path`, an .svg or
        .txt file, if given. `layout` is "home" or "second"; by default all layouts are shown.

        >>> import eindecomp as ed
        >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
        >>> print(ed.plan(graph, 2).draw_tiles("Z"))
        Z[i: 4]
        home: i over axis0 (2 tiles, each on one device)
        ┌───┬─────┬─────┐
        │ i │ 0:2 │ 2:4 │
        ├───┼─────┼─────┤
        │   │  0  │  1  │
        └───┴─────┴─────┘
        """
        return from_above("show.draw.tile_grid").draw_tiles(self, tensor, path, layout)

    def draw_vertex(self, name: str, path: str | Path | None = None) -> Any:
        """The dataflow of one vertex, a `Picture`: from tiles of its inputs to those of its result.

        Colour marks what a device receives from another. It is written to `path`, an .svg file, if
        given. Of more than 16 devices, one group is shown.
        """
        return from_above("show.draw.dataflow_svg").draw_vertex(self, name, path)

    def report(
        self,
        path: str | Path,
        *,
        result: Any = None,
        events: Any = None,
        compare: bool | Comparison = True,
        machine: Machine | str | Path | None = None,
        time_limit: float = 30,
    ) -> Path:
        """Write a report for a browser, and return its path: one HTML file that loads nothing.

        It has the graph, with layers that unfold; for every vertex its cut, tiles, cost and the
        next-best cut; strategies side by side; and what moves.

        - `path`: the file; that it can be written is checked before anything is computed.
        - `result`: what `ed.run` or `ed.simulate` returned, to set counted bytes beside planned
          ones.
        - `events`: the events of that run, for its timeline and the seconds of each vertex:
          `events = []`, then `ed.run(plan, inputs, on_event=events.append)`.
        - `compare`: whether to plan the usual strategies too; or a comparison, from `compare()`.
        - `machine`: the one on which seconds are predicted, by default the plan's, if it has one.
        - `time_limit`: the seconds for alternatives and strategies together; once they are over,
          the report says which were not computed.

        >>> import eindecomp as ed
        >>> from tempfile import TemporaryDirectory
        >>> plan = ed.plan(ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z"), 2)
        >>> with TemporaryDirectory() as folder:
        ...     plan.report(f"{folder}/plan.html", compare=False).name
        'plan.html'
        """
        return from_above("show.report.write").report(
            self, path, result=result, events=events, compare=compare, machine=machine,
            time_limit=time_limit,
        )  # fmt: skip

    def to_dtensor(self, device_mesh: Any = None) -> Any:
        """Its placements for PyTorch's DTensor, a `DTensorPlan`; on a `DeviceMesh` if given."""
        return from_above("frontends.torch.dtensor").to_dtensor(self, device_mesh)

    def to_jax(self, mesh: Any = None) -> Any:
        """Its shardings for JAX, a `JaxPlan`, over a mesh of its axes, which is made if need be."""
        return from_above("frontends.jax.shardings").to_jax(self, mesh)

    def verify_torch(
        self,
        module: Any = None,
        example_inputs: object = (),
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        device: str = "cuda",
        shape: Sequence[int] | None = None,
    ) -> Verification:
        """What DTensor moves under its placements beside what was planned.

        Of its own program, or of the module that it is a plan of, with the example that was
        imported. On GPUs, or "cpu": on a device mesh of the given shape, or of the fewest
        dimensions that the plan allows. None of these devices need be there.
        """
        if module is None:
            return from_above("frontends.torch.verify").verify_torch(self, device, shape)
        verify = from_above("frontends.torch.verify_module").verify_module
        return verify(self, module, example_inputs, example_kwargs, device, shape)

    def verify_jax(
        self, fn: Any = None, *args: Any, platform: str | None = None, **kwargs: Any
    ) -> Verification:
        """Compile the plan by JAX and set what its collectives move beside what was planned.

        Of a function that the plan's graph was imported from, and its arguments, that function is
        compiled as `plan.to_jax().jit` does. JAX must have the plan's number of devices, such as
        virtual ones on the CPU.
        """
        verify = from_above("frontends.jax.verify")
        if fn is None:
            return verify.verify(self, platform)
        return verify.verify_function(self, fn, args, kwargs)

    def save(self, path: str | Path) -> None:
        """Write the plan to a JSON file."""
        from_above("store.plan_file").save(self, path)

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan from a JSON file, checking all of it."""
        return from_above("store.plan_file").load(path)
