"""Every public name says what it is, what its parameters are, each with an example, and shows one.

Classes describe what their constructor takes: in `Args:` those that users make, in `Attributes:`
those that they are given.
"""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import eindecomp as ed
from eindecomp.engines.result import Result, Stats
from eindecomp.engines.tensor import Tensor
from eindecomp.frontends.redistribution import RedistributionStep
from eindecomp.graph.write import Picture
from eindecomp.layout.tiling import TileGrid
from eindecomp.planner.comparison import Compared, Comparison, Verification, Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RETURNED = (
    Compared, Comparison, Picture, RedistributionStep, Result, Stats, Tensor, TileGrid,
    Verification, Verified,
)  # fmt: skip
"""Classes without a public name of their own, whose objects public functions return."""
RECORDS = {
    "Compared",
    "Counts",
    "Fitted",
    "GeneratedToken",
    "RedistributionStep",
    "Stats",
    "Verified",
}
"""Classes that only ever come with another, whose example shows them."""


def public(holder: ModuleType, name: str) -> Iterator[tuple[str, Any]]:
    for own in holder.__all__:
        found = getattr(holder, own)
        if isinstance(found, ModuleType):
            yield from public(found, f"{name}.{own}")
        elif inspect.isclass(found) or inspect.isfunction(found):
            yield f"{name}.{own}", found


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    ours = (base for base in cls.__mro__ if base.__module__.startswith("eindecomp."))
    for name, found in ((name, found) for base in ours for name, found in vars(base).items()):
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        wanted = not name.startswith("_") or name == "__call__"
        if wanted and inspect.isfunction(function):
            yield name, function


NAMES = {**dict(public(ed, "ed")), **{cls.__name__: cls for cls in RETURNED}}
CLASSES = {name: found for name, found in NAMES.items() if inspect.isclass(found)}
FUNCTIONS = {name: found for name, found in NAMES.items() if not inspect.isclass(found)}
METHODS = {
    f"{name}.{own}": function for name, cls in CLASSES.items() for own, function in methods(cls)
}


def described(doc: str, *sections: str) -> dict[str, str]:
    """The items of sections such as `Args:`, by name."""
    found: dict[str, str] = {}
    inside, last = False, ""
    for line in inspect.cleandoc(doc).splitlines():
        if re.fullmatch(r"[A-Z]\w+:", line):
            inside = line[:-1] in sections
        elif inside and (item := re.match(r" {4}(\*{0,2}\w+): (.+)", line)):
            last = item[1]
            found[last] = item[2]
        elif inside and line.startswith(" " * 8):
            found[last] += " " + line.strip()
    return found


def parameters(function: Callable[..., Any]) -> list[str]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(function).parameters.values()
    return [
        stars.get(p.kind, "") + p.name
        for p in found
        if p.name not in ("self", "cls") and not p.name.startswith("_")
    ]


def without_example(items: dict[str, str]) -> list[str]:
    return [name for name, text in items.items() if "`" not in text]


@pytest.mark.parametrize("name", {**FUNCTIONS, **METHODS})
def test_functions_describe_their_parameters(name: str) -> None:
    function = {**FUNCTIONS, **METHODS}[name]
    items = described(function.__doc__ or "", "Args")
    assert list(items) == parameters(function)
    assert without_example(items) == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_show_an_example(name: str) -> None:
    assert "\nExamples:\n    >>> " in inspect.cleandoc(FUNCTIONS[name].__doc__ or "")


@pytest.mark.parametrize("name", CLASSES)
def test_classes_describe_what_they_are_made_of(name: str) -> None:
    cls = CLASSES[name]
    if issubclass(cls, BaseException) and "__init__" not in vars(cls):
        return  # a message, as of any error
    if getattr(cls, "_is_protocol", False):
        return
    items = described(cls.__doc__ or "", "Args", "Attributes")
    assert without_example(items) == []
    assert list(items) == parameters(cls)


@pytest.mark.parametrize("name", [n for n in CLASSES if n.rpartition(".")[2] not in RECORDS])
def test_classes_show_an_example(name: str) -> None:
    assert "\nExamples:\n    >>> " in inspect.cleandoc(CLASSES[name].__doc__ or "")


def test_what_is_described_is_found() -> None:
    doc = """One sentence.

    Args:
        x: A number, such as `1`.
        **more: Options, which take
            two lines, such as `y=2`.

    Returns:
        z: nothing.
    """
    assert described(doc, "Args") == {
        "x": "A number, such as `1`.",
        "**more": "Options, which take two lines, such as `y=2`.",
    }
