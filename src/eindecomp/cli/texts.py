"""How the texts of options are read: pairs NAME=VALUE, whole numbers, pins, ties, and meshes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
