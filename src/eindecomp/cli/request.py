"""The options of `eindecomp plan`, declared once for all commands that plan, and what they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, get_type_hints

import typer

from eindecomp.cli.options import (
    STRATEGY_HELP,
    name_of,
    numbers_from,
    option,
    pin_from,
    read,
    recompute_from,
    reduce_types_from,
    strategy_from,
    strategy_names,
    tie_from,
    work_from,
)
from eindecomp.engines.engine import Engine, stated_device_count
from eindecomp.graph.graph import Graph
from eindecomp.graph.reduce_types import ROLES
from eindecomp.graph.rewrites.recompute import NAMES
from eindecomp.planner.costs.presets import PRESETS
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.show.progress import solving
from eindecomp.store.plan_file import from_json

InputsName = Literal["free", "sharded"]
ObjectiveName = Literal["bytes", "bound", "time"]
SolverName = Literal["auto", "exact", "tree", "linear"]
PiecesName = Literal["balanced", "even", "ceil"]
LookupsName = Literal["whole", "rows"]
DEFAULT_WORK = "1.2"


_option = partial(option, rich_help_panel="Planning")


def machine_names() -> list[str]:
    """What a shell completes as a machine."""
    return list(PRESETS)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of the planner on the command line: its fields are the options."""

    devices: Annotated[
        int | None,
        _option(
            "N",
            "how many devices; by default those of the engine: cores, GPUs, JAX's, ranks",
            "-p",
            "--devices",
            min=1,
        ),
    ] = None
    objective: Annotated[
        ObjectiveName,
        _option(
            "NAME", "bytes (that move), bound (the paper's, in elements) or time (on a machine)"
        ),
    ] = "bytes"
    solver: Annotated[
        SolverName,
        _option(
            "NAME",
            "auto, exact (fails unless the optimum is proved), or the paper's tree and "
            "linear, for objective bound",
        ),
    ] = "auto"
    strategy: Annotated[
        str | None,
        _option(
            "NAME",
            f"restrict the plan: free, which does not, {STRATEGY_HELP}",
            autocompletion=strategy_names,
        ),
    ] = None
    inputs: Annotated[
        InputsName,
        _option(
            "WHERE", "free (inputs lie wherever they are read) or sharded (each over all devices)"
        ),
    ] = "free"
    mesh: Annotated[str | None, _option("node=4,gpu=8", "axes of devices, outermost first")] = None
    memory: Annotated[str | None, _option("70GB", "the most memory a device may use")] = None
    machine: Annotated[
        str | None,
        _option(
            "NAME",
            "the machine for objective time, whose axes are the mesh of any objective: "
            f"{', '.join(PRESETS)}, or the .json file that calibrate has written",
            autocompletion=machine_names,
        ),
    ] = None
    pin: Annotated[
        list[str] | None,
        _option(
            "X=i:2,j:gpu",
            "fix a tensor's layout: pieces or axes (node+gpu) for its labels, others stay "
            "whole; repeat it for several tensors",
        ),
    ] = None
    tie: Annotated[
        list[str] | None,
        _option(
            "W=new_W",
            "input W is what the last run left of output new_W; replaces the ties of the "
            "graph; repeat it for several inputs",
        ),
    ] = None
    ties: Annotated[
        bool, _option(None, "keep the ties of the graph, or plan without any", "--ties/--no-ties")
    ] = True
    rewrite: Annotated[
        bool,
        _option(
            None, "plan the rewritten graph, or the graph as written", "--rewrite/--no-rewrite"
        ),
    ] = True
    work: Annotated[
        str,
        _option(
            "1.2",
            "contraction orders may take so many times the least operations if fewer bytes "
            "move; usual keeps the usual order",
        ),
    ] = DEFAULT_WORK
    pieces: Annotated[
        PiecesName,
        _option(
            "NAME",
            "how sizes that do not divide are cut: balanced (pieces differ by at most one), "
            "even (not at all, as in JAX), or ceil (chunks of the ceiling, as in DTensor)",
        ),
    ] = "balanced"
    lookups: Annotated[
        LookupsName,
        _option(
            "NAME",
            "what moves where an index names rows of a table: whole (blocks of it, exactly as "
            "many bytes as planned), or rows (only those, at most as many)",
        ),
    ] = "whole"
    pending: Annotated[
        bool,
        _option(
            None,
            "whether partial results may stay where they are until they are needed combined",
            "--pending/--no-pending",
        ),
    ] = True
    reduce_dtype: Annotated[
        list[str] | None,
        _option(
            "TYPE",
            "the type in which partial results travel, such as bfloat16, or by tensor or role: "
            f"Z=float16; roles are {', '.join(ROLES)}; repeat it for several",
        ),
    ] = None
    recompute: Annotated[
        str | None,
        _option(
            "NAME",
            "what the backward pass of a training step computes again instead of keeping it: "
            f"{', '.join(NAMES)}, its first parts, such as 12, or tensors, such as H0,H1",
        ),
    ] = None
    recompute_work: Annotated[
        float,
        _option("TIMES", "how many times the operations of the step auto may take", min=1),
    ] = 1.34
    microbatches: Annotated[
        str | None,
        _option("LABEL=N", "into how many parts, one after another, a batch is divided, as b=4"),
    ] = None
    time: Annotated[float, _option("SECONDS", "how long to search", min=0)] = 45

    def plan(self, graph: Graph, *, keep_on_interrupt: bool = True) -> Plan:
        """Plan a graph as asked, with a live line on a terminal; say so if Ctrl-C has ended it."""
        pin, tie = pin_from(self.pin or ()), tie_from(self.tie or ())
        if tie and not self.ties:
            raise typer.BadParameter("--no-ties does not go with --tie")
        asked: dict[str, Any] = asdict(self) | {
            "strategy": None if self.strategy is None else strategy_from(self.strategy),
            "mesh": numbers_from("--mesh", "node=4,gpu=8", self.mesh),
            "pin": pin,
            "tie": None if self.ties and not tie else tie,
            "work": work_from(self.work),
            "recompute": recompute_from(self.recompute),
            "microbatches": numbers_from("--microbatches", "b=4", self.microbatches),
            "reduce_dtype": reduce_types_from(self.reduce_dtype or ()),
        }
        del asked["ties"]
        limit: float = asked.pop("time")
        with solving(None) as on_event:
            made = make_plan(
                graph, **asked, time_limit=limit, on_event=on_event,
                keep_on_interrupt=keep_on_interrupt,
            )  # fmt: skip
        if made.stopped_by == "interrupt":
            typer.echo("eindecomp: interrupted; this is the best plan so far", err=True)
        return made

    def for_engine(self, engine: Engine) -> Request:
        """This request for as many devices as an engine has, unless it states a number itself."""
        if self.devices is not None or self.mesh is not None:
            return self  # without asking the engine: JAX would start with the devices it has now
        return replace(self, devices=stated_device_count(engine))

    def plan_of(self, file: str, *, timed: bool = False) -> Plan:
        """The plan in a file, or one made for the graph in it.

        Where a saved plan is `timed`, --machine is what it is timed on, not an option of planning.
        """
        return self.plan_from(read(file), file, timed=timed)

    def plan_from(self, content: Graph | bytes, file: str, *, timed: bool = False) -> Plan:
        """Like `plan_of`, for what was read from the file."""
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


def _options(called: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a command or of a dataclass, as options."""
    hints, own = get_type_hints(called, include_extras=True), signature(called).parameters.values()
    return [each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY) for each in own]


def options_from_fields(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options, behind its own ones."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = [own for own in _options(command) if own.name not in groups]
    parameters += [own for group in groups.values() for own in _options(group)]

    @wraps(command)
    def with_groups(**given: Any) -> None:
        grouped = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**grouped, **given)

    with_groups.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    with_groups.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_groups
