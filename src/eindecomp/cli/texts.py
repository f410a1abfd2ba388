"""How the texts of options are read: NAME=VALUE, numbers, pins, ties, meshes, strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

import typer

from eindecomp.planner.space.strategy import ALIASES, NAMED, OTHERS, STATES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from eindecomp.planner.space.strategy import GivenStrategy

InputsName = Literal["free", "sharded"]


def pairs_from(option: str, example: str, texts: Iterable[str]) -> dict[str, str]:
    """What each name is given; `example` shows in messages how the option is written.

    >>> pairs_from("--tie", "W=new_W", ["W=new_W", "B = new_B"])
    {'W': 'new_W', 'B': 'new_B'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals:
            raise typer.BadParameter(f"{option} is such as {example}, not {text!r}")
        if name in found:
            raise typer.BadParameter(f"{option}: {name!r} is given twice")
        found[name] = value
    return found


def number_from(text: str) -> int | None:
    """A whole number with no more digits than numbers of devices or pieces have."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else None


def inputs_from(text: str) -> InputsName:
    """Where inputs lie; whoever means arrays learns which option takes them."""
    names = get_args(InputsName)
    if text not in names:
        hint = "; arrays are given by --data of eindecomp run" if {".", "="} & set(text) else ""
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(names)}{hint}")
    return cast("InputsName", text)


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


def axes_from(text: str) -> dict[str, int]:
    """The axes of a mesh, outermost first.

    >>> axes_from("node=4, gpu=8")
    {'node': 4, 'gpu': 8}
    """
    found: dict[str, int] = {}
    for axis in text.split(","):
        name, _, given = (part.strip() for part in axis.partition("="))
        size = number_from(given)
        if not name or size is None or name in found:
            raise typer.BadParameter(f"--mesh is such as node=4,gpu=8, not {text!r}")
        found[name] = size
    return found


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
    kinds: dict[str, list[str]] = {}
    degrees: dict[str, int] = {}
    others: list[str] = []
    state: str | None = None
    for part in text.split(","):
        name, equals, labels = (each.strip() for each in part.partition("="))
        label, colon, value = (each.strip() for each in part.partition(":"))
        if equals:
            _once(text, name, kinds)
            kinds[name] = []
            for each in map(str.strip, labels.split("+")):
                _once(text, each, kinds[name])
                kinds[name].append(each)
        elif colon and value in STATES and label == "state" and state is None:
            state = value
        elif colon and (degree := number_from(value)) is not None:
            _once(text, label, degrees)
            degrees[label] = degree
        elif colon:
            raise typer.BadParameter(
                f"strategy {text!r}: {part.strip()!r} is neither such as b:2 nor one state "
                f"({', '.join(STATES)})"
            )
        else:
            _once(text, name, others)
            others.append(name)
    if not kinds and not degrees and state is None:
        return others
    kinds |= {OTHERS: others} if others else {}
    return {"labels": kinds, "degrees": degrees, "state": state or "free"}


def _once(text: str, name: str, found: Collection[str]) -> None:
    if not name:
        raise typer.BadParameter(f"strategy {text!r}: a label is missing")
    if name in found:
        raise typer.BadParameter(f"strategy {text!r}: {name!r} is there twice")
