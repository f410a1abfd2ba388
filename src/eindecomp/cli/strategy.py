"""A strategy as it is written on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from eindecomp.cli.texts import number_from
from eindecomp.planner.space.strategy import ALIASES, NAMED, OTHERS, STATES

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.planner.space.strategy import GivenStrategy

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
