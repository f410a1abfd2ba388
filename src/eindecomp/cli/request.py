"""What the planning commands share: the options of `eindecomp plan`, declared once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_type_hints

import typer

from eindecomp.cli.options import name_of, read
from eindecomp.cli.texts import (
    STRATEGY_HELP,
    axes_from,
    pin_from,
    strategy_from,
    strategy_names,
    tie_from,
    work_from,
)
from eindecomp.engines.engine import Engine, stated_device_count
from eindecomp.graph.graph import Graph
from eindecomp.planner.costs.machine import PRESETS
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.show.progress import solving
from eindecomp.store.plan_file import from_json

InputsName = Literal["free", "sharded"]
ObjectiveName = Literal["bytes", "bound", "time"]
SolverName = Literal["auto", "exact", "tree", "linear"]
PiecesName = Literal["balanced", "even", "ceil"]
DEFAULT_WORK = "1.2"
PANEL = "Planning"


def machine_names() -> list[str]:
    """What a shell completes as a machine, beside files."""
    return list(PRESETS)


def _option(*names: str, **given: Any) -> Any:
    return typer.Option(*names, rich_help_panel=PANEL, **given)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of the planner on the command line: its fields are the options."""

    devices: Annotated[
        int | None,
        _option(
            "-p", "--devices", metavar="N", min=1,
            help="how many devices; by default those of the engine: cores, GPUs, JAX's, ranks",
        ),
    ] = None  # fmt: skip
    objective: Annotated[
        ObjectiveName,
        _option(
            metavar="NAME",
            help="bytes (that move), bound (the paper's, in elements) or time (on a machine)",
        ),
    ] = "bytes"
    solver: Annotated[
        SolverName,
        _option(
            metavar="NAME",
            help="auto, exact (fails unless the optimum is proved), or the paper's tree and "
            "linear, for objective bound",
        ),
    ] = "auto"
    strategy: Annotated[
        str | None,
        _option(
            metavar="NAME", autocompletion=strategy_names,
            help=f"restrict the plan: free, which does not, {STRATEGY_HELP}",
        ),
    ] = None  # fmt: skip
    inputs: Annotated[
        InputsName,
        _option(
            metavar="WHERE",
            help="free (inputs lie wherever they are read) or sharded (each over all devices)",
        ),
    ] = "free"
    mesh: Annotated[
        str | None, _option(metavar="node=4,gpu=8", help="axes of the devices, outermost first")
    ] = None
    memory: Annotated[
        str | None, _option(metavar="70GB", help="the most memory a device may use")
    ] = None
    machine: Annotated[
        str | None,
        _option(
            metavar="NAME", autocompletion=machine_names,
            help="the machine for objective time, whose axes are the mesh of any objective: "
            f"{', '.join(PRESETS)}, or the .json file that calibrate has written",
        ),
    ] = None  # fmt: skip
    pin: Annotated[
        list[str] | None,
        _option(
            metavar="X=i:2,j:gpu",
            help="fix a tensor's layout: pieces or axes (node+gpu) for its labels, others stay "
            "whole; repeat it for several tensors",
        ),
    ] = None
    tie: Annotated[
        list[str] | None,
        _option(
            metavar="W=new_W",
            help="input W is what the last run left of output new_W; replaces the ties of the "
            "graph; repeat it for several inputs",
        ),
    ] = None
    ties: Annotated[
        bool, _option("--ties/--no-ties", help="keep the ties of the graph, or plan without any")
    ] = True
    rewrite: Annotated[
        bool,
        _option("--rewrite/--no-rewrite", help="plan the rewritten graph, or the graph as written"),
    ] = True
    work: Annotated[
        str,
        _option(
            metavar="1.2",
            help="contraction orders may take so many times the least operations if fewer bytes "
            "move; usual keeps the usual order",
        ),
    ] = DEFAULT_WORK
    pieces: Annotated[
        PiecesName,
        _option(
            metavar="NAME",
            help="how sizes that do not divide are cut: balanced (pieces differ by at most one), "
            "even (not at all, as in JAX), or ceil (chunks of the ceiling, as in DTensor)",
        ),
    ] = "balanced"
    time: Annotated[float, _option(metavar="SECONDS", min=0, help="how long to search")] = 45

    def plan(self, graph: Graph) -> Plan:
        """Plan a graph as asked, with a live line on a terminal."""
        pin, tie = pin_from(self.pin or ()), tie_from(self.tie or ())
        if tie and not self.ties:
            raise typer.BadParameter("--no-ties does not go with --tie")
        with solving(None) as on_event:
            return make_plan(
                graph,
                self.devices,
                objective=self.objective,
                solver=self.solver,
                strategy=None if self.strategy is None else strategy_from(self.strategy),
                inputs=self.inputs,
                memory=self.memory,
                mesh=None if self.mesh is None else axes_from(self.mesh),
                machine=self.machine,
                pin=pin,
                rewrite=self.rewrite,
                tie=None if self.ties and not tie else tie,
                work=work_from(self.work),
                pieces=self.pieces,
                time_limit=self.time,
                on_event=on_event,
            )

    def for_engine(self, engine: Engine) -> Request:
        """The same for as many devices as an engine has, unless it says how many itself."""
        if self.devices is not None or self.mesh is not None:
            return self  # without asking the engine: JAX would start with the devices it has now
        return replace(self, devices=stated_device_count(engine))

    def plan_of(self, file: str, *, timed: bool = False) -> Plan:
        """The plan that a file holds, or that is made of the graph it holds.

        Where a saved plan is `timed`, the machine is no option, but what it is timed on.
        """
        return self.plan_from(read(file), file, timed=timed)

    def plan_from(self, content: Graph | bytes, file: str, *, timed: bool = False) -> Plan:
        """The same of what was read from a file."""
        if not isinstance(content, bytes):
            return self.plan(content)
        default = Request(time=self.time, machine=self.machine if timed else None)
        names = [own.name for own in fields(self)]
        given = [f"--{name}" for name in names if getattr(self, name) != getattr(default, name)]
        if given:
            raise typer.BadParameter(
                f"{name_of(file)} is a plan already: options are for graphs, here "
                f"{', '.join(given)}"
            )
        return from_json(content, name_of(file))


def planning(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of planning, and hand it as `asked` what they say."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, parameter in signature(command).parameters.items()
        if name != "asked"
    ]
    hints = get_type_hints(Request, include_extras=True)
    options = [
        Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(Request)
    ]

    @wraps(command)
    def planned(**given: Any) -> None:
        asked = Request(**{option.name: given.pop(option.name) for option in options})
        command(asked=asked, **given)

    parameters = [*own, *options]
    planned.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    planned.__annotations__ = {each.name: each.annotation for each in parameters}
    return planned
