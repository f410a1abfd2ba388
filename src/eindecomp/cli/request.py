"""What the planning commands share: their options, and what they make of a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eindecomp.cli.progress import live_line
from eindecomp.cli.strategy import STRATEGY_HELP, strategy_from
from eindecomp.cli.texts import number_from, pairs_from
from eindecomp.errors import EinDecompError
from eindecomp.graph.text.elaborate import parse
from eindecomp.planner.costs.machine import PRESETS
from eindecomp.planner.make import plan as make_plan
from eindecomp.store.plan_file import MAX_BYTES, from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.plan import Plan

ObjectiveName = Literal["bytes", "bound", "time"]
SolverName = Literal["auto", "exact", "tree", "linear"]
InputsName = Literal["free", "sharded"]
PiecesName = Literal["balanced", "even", "ceil"]
DEFAULT_WORK = "1.2"

GraphFile = Annotated[str, typer.Argument(help="a graph (.ein); - reads it from standard input")]
AnyFile = Annotated[
    str, typer.Argument(help="a graph (.ein) or a saved plan (.json); - is standard input")
]
Devices = Annotated[
    int | None,
    typer.Option("-p", "--devices", min=1, help="how many devices; by default one for each core"),
]
Objective = Annotated[
    ObjectiveName,
    typer.Option(help="bytes moved, the paper's bound in elements, or time on a machine"),
]
Solver = Annotated[
    SolverName, typer.Option(help="tree and linear are the paper's, for objective bound")
]
Strategy = Annotated[
    str | None,
    typer.Option(help=f"restrict the plan: {STRATEGY_HELP}"),
]
Inputs = Annotated[
    InputsName,
    typer.Option(help="inputs lie wherever they are read, or each is sharded over all devices"),
]
MeshAxes = Annotated[
    str | None, typer.Option("--mesh", metavar="node=4,gpu=8", help="axes, outermost first")
]
Memory = Annotated[
    str | None, typer.Option(metavar="70GB", help="the most memory a device may use")
]
Pins = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="X=i:2,j:gpu",
        help="fix a tensor's layout: pieces or axes (node+gpu) for its labels, others stay whole; "
        "repeat it for several tensors",
    ),
]
Ties = Annotated[
    list[str] | None,
    typer.Option(
        "--tie",
        metavar="W=new_W",
        help="input W is what the last run left of output new_W; replaces the ties of the graph; "
        "repeat it for several inputs",
    ),
]
KeepTies = Annotated[
    bool, typer.Option("--ties/--no-ties", help="keep the ties of the graph, or plan without any")
]
MachineName = Annotated[
    str | None,
    typer.Option(
        "--machine",
        help="the machine for objective time, whose axes are the mesh of any objective: "
        f"{', '.join(PRESETS)}, or the .json file that calibrate has written",
    ),
]
Rewrite = Annotated[
    bool,
    typer.Option(
        "--rewrite/--no-rewrite", help="plan the rewritten graph, or the graph as written"
    ),
]
Work = Annotated[
    str,
    typer.Option(
        metavar="1.2",
        help="contraction orders may take so many times the least operations if fewer bytes move; "
        "usual keeps the usual order",
    ),
]
Pieces = Annotated[
    PiecesName,
    typer.Option(
        help="how sizes that do not divide are cut: into pieces that differ by at most one, "
        "only evenly, as JAX does, or into chunks of the ceiling, as DTensor does"
    ),
]
Time = Annotated[float, typer.Option("--time", min=0, help="seconds to search for")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    devices: int | None = None
    objective: ObjectiveName = "bytes"
    solver: SolverName = "auto"
    strategy: str | None = None
    inputs: InputsName = "free"
    mesh: str | None = None
    memory: str | None = None
    machine: str | None = None
    rewrite: bool = True
    time: float = 45
    pin: tuple[str, ...] = ()
    work: str = DEFAULT_WORK
    tie: tuple[str, ...] = ()
    ties: bool = True
    pieces: PiecesName = "balanced"

    def plan(self, graph: Graph) -> Plan:
        """Plan a graph as asked, with a live line on a terminal."""
        pin, tie = pin_from(self.pin), tie_from(self.tie)
        if tie and not self.ties:
            raise typer.BadParameter("--no-ties does not go with --tie")
        with live_line() as on_event:
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

    def for_devices(self, devices: int) -> Request:
        """The same for so many devices, unless it says how many itself."""
        is_said = self.devices is not None or self.mesh is not None
        return self if is_said else replace(self, devices=devices)

    def plan_of(self, file: str) -> Plan:
        """The plan that a file holds, or that is made of the graph it holds."""
        return self.plan_from(read(file), file)

    def plan_from(self, found: Graph | bytes, file: str) -> Plan:
        """The plan of what was read from a file."""
        if isinstance(found, bytes):
            default = Request(time=self.time)
            if self != default:
                raise typer.BadParameter(f"{name_of(file)} is a plan: options are for graphs")
            return from_json(found, name_of(file))
        return self.plan(found)


def read(file: str) -> Graph | bytes:
    """The graph that a file holds, or the bytes of a saved plan, which start with a brace."""
    if file == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    if data.lstrip()[:1] == b"{":
        return data
    try:
        return parse(data.decode("utf-8-sig"), name_of(file))
    except UnicodeDecodeError as error:
        message = f"{name_of(file)} is not UTF-8 text: {error.reason} at byte {error.start}"
        raise EinDecompError(message) from None


def name_of(file: str) -> str:
    """What messages call a file."""
    return "standard input" if file == "-" else file


def pin_from(texts: Sequence[str]) -> dict[str, dict[str, int | list[str]]]:
    """Layouts by tensor: pieces or axes by label.

    >>> pin_from(["X=i:2, j:gpu", "Y=i:node+gpu", "Z"])
    {'X': {'i': 2, 'j': ['gpu']}, 'Y': {'i': ['node', 'gpu']}, 'Z': {}}
    """
    found: dict[str, dict[str, int | list[str]]] = {}
    for text in texts:
        name, _, layout = (part.strip() for part in text.partition("="))
        if not name:
            raise typer.BadParameter(f"--pin is such as X=i:2,j:gpu, not {text!r}")
        if name in found:
            raise typer.BadParameter(f"--pin: {name!r} is pinned twice")
        found[name] = {}
        for cut in layout.split(",") if layout else ():
            label, _, value = (part.strip() for part in cut.partition(":"))
            if not label:
                raise typer.BadParameter(f"--pin {name}: {cut!r} names no label, as i:2 does")
            if label in found[name]:
                raise typer.BadParameter(f"--pin {name}: label {label!r} is there twice")
            found[name][label] = _pieces_or_axes(name, label, value)
    return found


def tie_from(texts: Sequence[str]) -> dict[str, str]:
    """Results by the inputs that they become.

    >>> tie_from(["W=new_W", "B = new_B"])
    {'W': 'new_W', 'B': 'new_B'}
    """
    found = pairs_from("--tie", "W=new_W", texts)
    for name, result in found.items():
        if not result:
            raise typer.BadParameter(f"--tie {name}: no result is named, as W=new_W does")
    return found


def work_from(text: str) -> float | None:
    """The limit on the operations of contraction orders; None for the usual order.

    >>> work_from("1.5"), work_from("inf"), work_from("usual")
    (1.5, inf, None)
    """
    if text == "usual":
        return None
    try:
        work = float(text)
    except ValueError:
        work = 0.0
    if not work >= 1:
        raise typer.BadParameter(f"--work is a number, 1 or more, or usual, not {text!r}")
    return work


def _pieces_or_axes(name: str, label: str, text: str) -> int | list[str]:
    if (pieces := number_from(text)) is not None:
        return pieces
    axes = [axis.strip() for axis in text.split("+")]
    if not all(axes):
        raise typer.BadParameter(
            f"--pin {name}: label {label!r} needs pieces or axes, "
            f"such as {label}:2 or {label}:node+gpu, not {text!r}"
        )
    return axes


def axes_from(text: str) -> dict[str, int]:
    """The axes of a mesh."""
    found: dict[str, int] = {}
    for axis in text.split(","):
        name, _, given = (part.strip() for part in axis.partition("="))
        size = number_from(given)
        if not name or size is None or name in found:
            raise typer.BadParameter(f"--mesh is such as node=4,gpu=8, not {text!r}")
        found[name] = size
    return found
