"""How the texts of options are read: NAME=VALUE, numbers, pins, ties, meshes, strategies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from eindecomp.planner.space.strategy import ALIASES, NAMED, OTHERS, STATES, GivenStrategy


def pairs_from(option: str, example: str, texts: Iterable[str], sign: str = "=") -> dict[str, str]:
    """What each name is given; `example` shows in messages how the option is written.

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
    axes: dict[str, int] = {}
    for name, given in pairs_from("--mesh", "node=4,gpu=8", text.split(",")).items():
        size = number_from(given)
        if size is None:
            raise typer.BadParameter(f"--mesh is such as node=4,gpu=8, not {text!r}")
        axes[name] = size
    return axes


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
