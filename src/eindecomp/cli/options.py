"""What several commands share: files, `--json`, `--engine`, and how texts of options are read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eindecomp.engines.engine import Engine, engine_names, find_engine
from eindecomp.engines.whole_files import check_writable
from eindecomp.errors import EinDecompError
from eindecomp.graph.graph import Graph
from eindecomp.graph.reduce_types import ALL
from eindecomp.graph.rewrites.recompute import NAMES
from eindecomp.graph.text.elaborate import parse
from eindecomp.planner.space.strategy import ALIASES, NAMED, OTHERS, STATES, GivenStrategy
from eindecomp.store.plan_file import PLAN_FILE


def option(metavar: str | None, help: str, *names: str, **more: Any) -> Any:  # noqa: A002
    """An option that takes a value, which the help calls `metavar`."""
    return typer.Option(*names, metavar=metavar, help=help, **more)


def flag(name: str, help: str) -> Any:  # noqa: A002
    """An option that takes no value."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str) -> Any:  # noqa: A002
    """What a command is given without a name before it."""
    return typer.Argument(metavar=metavar, help=help)


def to_write(*names: str, help: str) -> Any:  # noqa: A002 - as typer calls it
    """An option that takes a file to write, refused at once if it cannot be written later."""
    return typer.Option(*names, metavar="FILE", callback=_check, help=help)


def _check(ctx: typer.Context, path: Path | None) -> Path | None:
    if path is None or ctx.resilient_parsing:  # which is completion: it leaves files alone
        return path
    if str(path) == "-":
        raise typer.BadParameter("name a file: what goes to standard output is printed by --json")
    check_writable(path)
    return path


AnyFile = Annotated[
    str, argument("FILE", "a graph (.ein) or a saved plan (.json); - is standard input")
]
Output = Annotated[Path | None, to_write("-o", "--output", help="write the result to this file")]
Trace = Annotated[
    Path | None, to_write("--trace", help="write a trace for Perfetto or Chrome to this file")
]
Json = Annotated[
    bool, flag("--json", "print one JSON object, and nothing else, on standard output")
]
EngineName = Annotated[
    str,
    option(
        "NAME",
        "the engine that runs the plan: threads, torch, jax, spmd, ray, apart",
        autocompletion=engine_names,
    ),
]
EngineOptions = Annotated[
    list[str] | None,
    option("KEY=VALUE", "an option of the engine, as workers=2; repeat it for several"),
]


def read(file: str) -> Graph | bytes:
    """The graph that a file holds, or the bytes of what looks like JSON, as a saved plan does."""
    if file == "-":
        data = sys.stdin.buffer.read(PLAN_FILE.max_bytes + 1)
    else:
        with Path(file).open("rb") as opened:
            data = opened.read(PLAN_FILE.max_bytes + 1)
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return data
    if not data.strip():
        raise EinDecompError(f"{name_of(file)} is empty: a graph or a saved plan is expected")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{name_of(file)} is not UTF-8 text: {error.reason} at byte {error.start}"
        raise EinDecompError(message) from None
    return parse(text, name_of(file))


def name_of(file: str) -> str:
    """The name of a file in messages."""
    return "standard input" if file == "-" else file


def refuse_overwriting(params: Mapping[str, Any]) -> None:
    """Refuse options of a command that would write to a file which it reads."""
    texts = [params.get("file") or "", *(params.get("data") or ())]
    read = {Path(text.rpartition("=")[2].partition("#")[0]).resolve() for text in texts if text}
    for path in params.values():
        if isinstance(path, Path) and path.resolve() in read:
            raise typer.BadParameter(f"{path} is read: name another file to write")


def engine_from(name: str, texts: Sequence[str] | None) -> Engine:
    """The engine of a name, with options as they are written on the command line.

    Where a job has several ranks, all run the same command, and only the first says anything.
    """
    engine = find_engine(name, options_from(texts or ()))
    if not is_first(engine):
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    return engine


def is_first(engine: Engine) -> bool:
    """Whether this process is the one of its job that prints and writes files."""
    return not getattr(engine, "rank", 0)


def options_from(texts: Sequence[str]) -> dict[str, int | float | bool | str]:
    """Options by name, each value read as what it looks like.

    >>> options_from(["workers=2", "share=0.5", "pin=true", "host=10.0.0.1"])
    {'workers': 2, 'share': 0.5, 'pin': True, 'host': '10.0.0.1'}
    """
    given = pairs_from("--option", "workers=2", texts)
    return {name: _value(value) for name, value in given.items()}


def _value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


# Texts of options: NAME=VALUE, numbers, pins, ties, meshes, strategies


def pairs_from(option: str, example: str, texts: Iterable[str], sign: str = "=") -> dict[str, str]:
    """The value of each name; `example` shows in messages how the option is written.

    >>> pairs_from("--tie", "W=new_W", ["W=new_W", "B = new_B"])
    {'W': 'new_W', 'B': 'new_B'}
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, given, value = (part.strip() for part in text.partition(sign))
        if not name or not given:
            raise typer.BadParameter(f"{option} is such as {example}, not {text!r}")
        if name in pairs:
            raise typer.BadParameter(f"{option}: {name!r} is given twice")
        pairs[name] = value
    return pairs


def number_from(text: str) -> int | None:
    """A whole number with no more digits than numbers of devices or pieces have."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else None


def pin_from(texts: Sequence[str]) -> dict[str, dict[str, int | list[str]]]:
    """Layouts by tensor: pieces or axes by label.

    >>> pin_from(["X=i:2, j:gpu", "Y=i:node+gpu", "Z"])
    {'X': {'i': 2, 'j': ['gpu']}, 'Y': {'i': ['node', 'gpu']}, 'Z': {}}
    """
    example = "X=i:2,j:gpu"
    pins: dict[str, dict[str, int | list[str]]] = {}
    named = [text if "=" in text else f"{text}=" for text in texts]
    for name, layout in pairs_from("--pin", example, named).items():
        cuts = pairs_from("--pin", example, layout.split(",") if layout else (), ":")
        pins[name] = {label: _pieces_or_axes(label, cut) for label, cut in cuts.items()}
    return pins


def _pieces_or_axes(label: str, text: str) -> int | list[str]:
    if (pieces := number_from(text)) is not None:
        return pieces
    axes = [axis.strip() for axis in text.split("+")]
    if not all(axes):
        example = f"{label}:2 or {label}:node+gpu"
        raise typer.BadParameter(f"--pin is of pieces or axes, such as {example}, not {text!r}")
    return axes


def tie_from(texts: Sequence[str]) -> dict[str, str]:
    """Results by the inputs that they become.

    >>> tie_from(["W=new_W", "B = new_B"])
    {'W': 'new_W', 'B': 'new_B'}
    """
    ties = pairs_from("--tie", "W=new_W", texts)
    for name, result in ties.items():
        if not result:
            raise typer.BadParameter(f"--tie {name}: no result is named, as W=new_W does")
    return ties


def reduce_types_from(texts: Sequence[str]) -> dict[str, str] | None:
    """The types in which partial results travel, by tensor or role.

    >>> reduce_types_from(["bfloat16", "gradients=float32"])
    {'all': 'bfloat16', 'gradients': 'float32'}
    """
    named = [text if "=" in text else f"{ALL}={text}" for text in texts]
    return pairs_from("--reduce-dtype", "gradients=float32", named) or None


def recompute_from(text: str | None) -> str | int | list[str] | None:
    """What the backward pass computes again.

    >>> recompute_from("layers"), recompute_from("12"), recompute_from("S0, S1")
    ('layers', 12, ['S0', 'S1'])
    """
    if text is None or text in NAMES:
        return text
    if re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    return [name.strip() for name in text.split(",")]


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


def numbers_from(option: str, example: str, text: str | None) -> dict[str, int] | None:
    """Numbers by name, in the order given, such as the axes of a mesh, outermost first.

    >>> numbers_from("--mesh", "node=4,gpu=8", "node=4, gpu=8")
    {'node': 4, 'gpu': 8}
    """
    if text is None:
        return None
    numbers: dict[str, int] = {}
    for name, given in pairs_from(option, example, text.split(",")).items():
        number = number_from(given)
        if number is None:
            raise typer.BadParameter(f"{option} is such as {example}, not {text!r}")
        numbers[name] = number
    return numbers


def strategy_names() -> list[str]:
    """What a shell completes as a strategy."""
    return ["free", "sqrt", *NAMED, *ALIASES]


STRATEGY_HELP = (
    f"sqrt, {', '.join(NAMED)}; labels such as h,f; or such as b:2,t=h+g,s,state:gathered: two "
    "devices cut b, the others h and g where a vertex has t (or is named t), s elsewhere"
)


def strategy_from(text: str) -> GivenStrategy | None:
    """The name of a strategy, labels, or what each of several parts says; None where it is free.

    >>> strategy_from("megatron"), strategy_from("h, f")
    ('megatron', ['h', 'f'])
    >>> strategy_from("b:2, t=h+g, s, state:gathered")
    {'labels': {'t': ['h', 'g'], '*': ['s']}, 'degrees': {'b': 2}, 'state': 'gathered'}
    """
    if text == "free":
        return None
    if text == "sqrt" or text in NAMED or text in ALIASES:
        return text
    option, example = f"strategy {text!r}", "b:2,t=h+g,s,state:gathered"
    parts = text.split(",")
    others = _labels(option, [part for part in parts if "=" not in part and ":" not in part])
    if len(others) == len(parts):
        return others
    kinds = pairs_from(option, example, [part for part in parts if "=" in part])
    labels = {kind: _labels(option, listed.split("+")) for kind, listed in kinds.items()}
    labels |= {OTHERS: others} if others else {}
    counts = pairs_from(option, example, [part for part in parts if ":" in part], ":")
    state = counts.pop("state") if counts.get("state") in STATES else "free"
    degrees: dict[str, int] = {}
    for label, count in counts.items():
        degree = number_from(count)
        if degree is None:
            known = f"neither such as b:2 nor one state ({', '.join(STATES)})"
            raise typer.BadParameter(f"{option}: '{label}:{count}' is {known}")
        degrees[label] = degree
    return {"labels": labels, "degrees": degrees, "state": state}


def _labels(option: str, parts: Sequence[str]) -> list[str]:
    labels = [part.strip() for part in parts]
    if not all(labels):
        raise typer.BadParameter(f"{option}: a label is missing")
    for label in labels:
        if labels.count(label) > 1:
            raise typer.BadParameter(f"{option}: {label!r} is there twice")
    return labels
