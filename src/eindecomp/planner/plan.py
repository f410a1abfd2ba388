"""`Plan`: how every vertex of a graph is cut, where its results lie, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from eindecomp.above import from_above
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.recompute import Recompute
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.write import Picture
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import TileGrid
from eindecomp.planner.comparison import Comparison, Fewer, Verification
from eindecomp.planner.costs.cost import Cost, Number, decided_cost
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.presets import machine_of
from eindecomp.planner.costs.price import Objective, PriceInBytes, PriceInSeconds, price_of
from eindecomp.planner.options import Orders
from eindecomp.planner.space.choices import Decision, Layouts
from eindecomp.planner.space.strategy import GivenStrategy, StrategyForm


@dataclass(frozen=True)
class Plan:
    """A decision for every planned vertex of a graph, its cost, and a bound on any plan's cost.

    The bound holds for any plan on this mesh, with these restrictions, that divides every vertex
    among all devices, as far as its sizes allow, and keeps each tensor in at most two layouts; for
    objective `time`, also for any that computes the same piece on several devices.

    Attributes:
        graph: What was planned: the rewritten graph, unless that was switched off, with
            `graph["Z"]`.
        mesh: The axes of the devices, such as `mesh.sizes`.
        objective: What is minimal, such as `"bytes"`.
        inputs: Where inputs lie, `"free"` or `"sharded"`.
        parts: Into how many pieces every vertex that is computed cuts each of its labels, such as
            `{"Z": {"i": 2, "k": 2, "j": 1}}`.
        decisions: For the same vertices the assignment of axes, the home and the second layout,
            such as `decisions["Z"].layouts`.
        given: The home and the second layout of inputs that have one, sharded, pinned or tied, such
            as `given["X"]`.
        costs: By vertex and by edge, in elements (`bound`), bytes (`bytes`) or seconds (`time`),
            such as `costs.join["Z"]`.
        bound: A proved lower bound on the cost of any plan, such as `32768`.
        strategy: What it was restricted to, such as `["b"]`.
        pin: The layouts that were asked for: pieces or mesh axes for labels of inputs and results,
            such as `{"X": {"i": 4}}`.
        tie: For each tied input the result that becomes it in the next run, such as `{"W":
            "new_W"}`: both have one home.
        machine: What seconds are of, such as an `ed.Machine`.
        memory: The most bytes that a device may hold, such as `2**30`.
        work: How many times the least operations contraction orders may take, such as `1.2`, and
            contractions that read operands in parts; None if there are neither.
        orders: Among which contraction orders that of the graph was chosen, such as
            `orders.considered`; None if it was not.
        pending: Whether some results might stay in parts, such as `True`; `decisions["Z"].waits`
            says which operands a vertex reads so.
        reduce_dtype: In which type partial results travel, by tensor or role, such as `{"all":
            "bfloat16"}`; none for that in which they accumulate.
        recompute: What the backward pass computes again instead of keeping it, such as
            `"layers"` or the first `12` parts of them; None for nothing.
        microbatches: Into how many parts, computed one after another, a batch is divided, such as
            `{"b": 4}`; the graph computes them already.
        solver: What was asked for, such as `"auto"`.
        method: The stages that found it, such as `"eliminate"`.
        stopped_by: What ended planning before it was done, `"time"` or `"interrupt"`; `""` if it
            ended by itself. Another run may then find another plan.
        seconds: How long planning took, such as `0.1`.

    Examples:
        >>> import eindecomp as ed
        >>> ed.plan(ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z"), devices=2)
        <Plan of 1 vertices for 2 devices, bytes: cost 0, bound 0>
    """

    graph: Graph
    mesh: Mesh
    objective: str | Objective
    inputs: str
    parts: Mapping[str, Mapping[str, int]]
    decisions: Mapping[str, Decision]
    given: Mapping[str, Layouts]
    costs: Cost
    bound: Number
    strategy: StrategyForm | None = None
    pin: Mapping[str, Mapping[str, int | tuple[str, ...]]] = field(default_factory=dict[str, Any])
    tie: Mapping[str, str] = field(default_factory=dict[str, str])
    machine: Machine | None = None
    memory: int | None = None
    work: float | None = None
    orders: Orders | None = None
    pending: bool = False
    reduce_dtype: Mapping[str, str] = field(default_factory=dict[str, str])
    recompute: Recompute = None
    microbatches: Mapping[str, int] = field(default_factory=dict[str, int])
    solver: str = "auto"
    method: str = ""
    stopped_by: str = field(default="", compare=False)
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
    def lookups(self) -> str:
        """What moves where an index names rows of a table: "whole" blocks of it, or "rows"."""
        return self.mesh.lookups

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
        own = price_of(self.objective, self.mesh, self.machine)
        price = PriceInBytes(self.mesh)
        return decided_cost(self.graph, price, self.decisions, self.given, nearest=own)

    @cached_property
    def least_of_any(self) -> int | None:
        """The fewest bytes that any schedule of this product moves, or of this attention.

        None for other graphs, and where inputs are not stored once: then nothing is known.
        """
        against = from_above("planner.any_schedule").whole_plan(self)
        return None if against is None else against.least

    @cached_property
    def fewer_devices(self) -> Fewer | None:
        """The smaller number of devices that suits this product better, and what it costs there.

        Each of those devices receives less than each device of this plan or, for objective `time`,
        all of them take less time. None where that is not so, and where it is not known: for graphs
        of more than one product, and under pins, ties, strategies and memory limits.
        """
        return from_above("planner.fewer_devices").fewer_devices(self)

    def time_on(self, machine: Machine | str | Path) -> Cost:
        """The seconds that the plan takes on a machine, whatever its objective.

        Args:
            machine: An `ed.Machine`, a preset such as `"cpu-cluster"`, or a file such as
                `"machine.json"`.

        Examples:
            >>> import eindecomp as ed
            >>> graph = ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> ed.plan(graph, 2).time_on("cpu-cluster").total > 0
            True
        """
        price = PriceInSeconds(self.mesh, machine_of(machine, axes=self.mesh.axes))
        return decided_cost(self.graph, price, self.decisions, self.given)

    def __str__(self) -> str:
        return from_above("show.explain").summary(self)

    def __repr__(self) -> str:
        asked = f"{len(self.parts)} vertices for {self.devices} devices"
        return f"<Plan of {asked}, {self.objective}: cost {self.cost}, bound {self.bound}>"

    def _repr_html_(self) -> str:
        return from_above("show.notebook").plan_html(self)

    def explain(self, width: int | None = None) -> str:
        """How vertices are cut, what moves where, what that costs, and the alternatives, as text.

        Args:
            width: The length of lines, such as `80`; by default that of the terminal, or 120.
        """
        return from_above("show.explain").explain(self, width)

    def compare(self, strategies: Mapping[str, GivenStrategy] | None = None) -> Comparison:
        """This plan against the strategies that apply to its graph, or against those given.

        Args:
            strategies: What to compare with, such as `{"by rows": ["i"]}`.
        """
        return from_above("show.compare").compare(self, strategies)

    def draw(self, path: str | Path | None = None, *, folded: bool = True) -> Picture:
        """A picture of the plan: boxes are vertices with their cuts, lines what is read.

        Lines are as thick as the bytes that move along them.

        Args:
            path: where to write it too, an `.svg` file, such as `"plan.svg"`.
            folded: `True` to draw repeated layers once.

        Examples:
            >>> import eindecomp as ed
            >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> ed.plan(graph, 2).draw()
            Picture(title='1 vertex on 2 devices (axis0=2)')
        """
        return from_above("show.graph_pictures").draw_plan(self, path, folded=folded)

    def draw_tiles(self, tensor: Vertex | str, path: str | Path | None = None) -> TileGrid:
        """The tiles of a tensor and the devices that hold them, as text and as a picture.

        Args:
            tensor: its name, such as `"Z"`, or the vertex.
            path: where to write it too, an `.svg` or `.txt` file, such as `"Z.svg"`.

        Examples:
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
        return from_above("show.tile_grid").draw_tiles(self, tensor, path)

    def report(self, path: str | Path, *, compare: bool = True, time_limit: float = 30) -> Path:
        """Write a report for a browser, and return its path: one HTML file that loads nothing.

        It has the graph, with layers that unfold; for every vertex its cut, tiles, cost and the
        next-best cut; strategies side by side; and what moves.

        Args:
            path: the file, such as `"plan.html"`; whether it can be written is checked first.
            compare: `True` to plan the usual strategies too.
            time_limit: the seconds for alternatives and strategies together, such as `30`; the
                report says what was not computed for lack of time.

        Examples:
            >>> import eindecomp as ed
            >>> from tempfile import TemporaryDirectory
            >>> plan = ed.plan(ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z"), 2)
            >>> with TemporaryDirectory() as folder:
            ...     plan.report(f"{folder}/plan.html", compare=False).name
            'plan.html'
        """
        return from_above("show.report").report(self, path, compare=compare, time_limit=time_limit)

    def to_dtensor(self, device_mesh: Any = None) -> Any:
        """Its placements for PyTorch's DTensor, a `DTensorPlan`.

        Args:
            device_mesh: A `DeviceMesh` to lay it out on, such as `init_device_mesh("cuda", (2,
                4))`.
        """
        return from_above("frontends.torch.dtensor").to_dtensor(self, device_mesh)

    def to_jax(self, mesh: Any = None) -> Any:
        """Its shardings for JAX, a `JaxPlan`.

        Args:
            mesh: A `jax.sharding.Mesh` of the plan's axes, such as `jax.make_mesh((4,),
                ("axis0",))`; by default it is made.
        """
        return from_above("frontends.jax.shardings").to_jax(self, mesh)

    def verify_torch(
        self,
        module: Any,
        example_inputs: object = (),
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        device: str = "cuda",
        shape: Sequence[int] | None = None,
    ) -> Verification:
        """What DTensor moves when a module runs under the plan, beside what was planned.

        None of the devices need be there.

        Args:
            module: The module that it is a plan of, such as `model`.
            example_inputs: The example with which the module was imported, such as `(x,)`.
            example_kwargs: Its keyword arguments, such as `{"mask": mask}`.
            device: `"cuda"` or `"cpu"`.
            shape: That of the device mesh, such as `(2, 4)`; by default it has the fewest
                dimensions that the plan allows.
        """
        verify = from_above("frontends.torch.verify").verify_module
        return verify(self, module, example_inputs, example_kwargs, device, shape)

    def verify_jax(
        self, fn: Any = None, *args: Any, platform: str | None = None, **kwargs: Any
    ) -> Verification:
        """Compile the plan by JAX and set what its collectives move beside what was planned.

        JAX must have the plan's number of devices, such as virtual ones on the CPU.

        Args:
            fn: The function that the plan's graph was imported from, such as `model`, compiled as
                `plan.to_jax().jit` does; by default the plan's own program.
            *args: Its arguments, such as `x`.
            platform: The devices to compile for, such as `"cpu"`.
            **kwargs: Its keyword arguments, such as `mask=mask`.
        """
        verify = from_above("frontends.jax.shardings")
        if fn is None:
            return verify.verify_program(self, platform)
        return verify.verify_function(self, fn, args, kwargs)

    def save(self, path: str | Path) -> None:
        """Write the plan to a JSON file.

        Args:
            path: The file, such as `"plan.json"`.
        """
        from_above("store.plan_file").save(self, path)

    @staticmethod
    def load(path: str | Path) -> Plan:
        """Read a plan from a JSON file, checking all of it.

        Args:
            path: The file, such as `"plan.json"`.

        Raises:
            PlanError: The file does not hold a plan; its message names the field.
        """
        return from_above("store.plan_file").load(path)
