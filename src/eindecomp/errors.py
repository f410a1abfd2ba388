"""Everything EinDecomp raises on bad input.

Each class is also a `ValueError`, so a caller who knows nothing of us can still catch it. Messages
name the expression, the label and the shape; a text error also shows the line with a caret.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from numbers import Integral
from typing import Any


class EinDecompError(ValueError):
    """Base of all errors caused by what the user gave us.

    Examples:
        >>> import eindecomp as ed
        >>> try:
        ...     ed.parse("Z[i] <- Q[i]")
        ... except ed.EinDecompError as error:
        ...     print(type(error).__name__)
        TextError
    """


class LabelWarning(UserWarning):
    """A label of a sum looks misspelt: two factors are summed each over a label of its own.

    `warnings.simplefilter("ignore", ed.LabelWarning)` is for those who mean it.

    Examples:
        >>> import warnings
        >>> import eindecomp as ed
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always")
        ...     g = ed.parse("input X[i: 2, j: 3], Y[j, k: 4]\\nZ[i,k] <- sum X[i,jj] * Y[j,k]")
        >>> print(str(told[0].message).partition(",")[0])
        <text>:2:15: labels 'jj' and 'j'
    """


class ExpressionError(EinDecompError):
    """A scalar expression, monoid, spec string or EinSum is not well formed.

    Examples:
        >>> import eindecomp as ed
        >>> ed.monoid("minus", "x - y", identity=0)
        Traceback (most recent call last):
        eindecomp.errors.ExpressionError: 'minus' is not a commutative monoid: x ⊕ y ≠ y ⊕ x for ...
    """


class GraphError(EinDecompError):
    """A vertex does not fit its inputs, or a graph is not well formed.

    Examples:
        >>> import eindecomp as ed
        >>> ed.Graph()["Z"]
        Traceback (most recent call last):
        eindecomp.errors.GraphError: the graph has no tensor 'Z'
    """


class OperandError(GraphError):
    """One input of a vertex does not fit it; `operand` is its position."""

    def __init__(self, message: str, operand: int) -> None:
        super().__init__(message)
        self.operand = operand

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return OperandError, (str(self), self.operand)


class MacroError(EinDecompError):
    """A macro is not well formed, or is called in a way it does not allow."""


class InputError(EinDecompError):
    """The arrays given to a computation do not fit its inputs.

    Examples:
        >>> import eindecomp as ed
        >>> ed.evaluate(ed.parse("input X[i: 3]\\nZ[i] <- 2 * X[i]\\noutput Z"), {"X": [1, 2]})
        Traceback (most recent call last):
        eindecomp.errors.InputError: ...
    """


class RunError(EinDecompError):
    """A kernel failed while a plan was run.

    Examples:
        >>> import eindecomp as ed
        >>> graph = ed.parse("input E[v: 3], i[b: 2] int32\\nZ[b] <- E[i[b]]\\noutput Z")
        >>> ed.run(ed.plan(graph, 1), {"E": [1.0, 2.0, 3.0], "i": [0, 7]})
        Traceback (most recent call last):
        eindecomp.errors.RunError: ...
    """


class GradientError(EinDecompError):
    """A gradient was asked for where none is defined.

    Examples:
        >>> import eindecomp as ed
        >>> ed.grad(ed.parse("input X[i: 3]\\nZ[i] <- 2 * X[i]\\noutput Z"), "Z", wrt="X")
        Traceback (most recent call last):
        eindecomp.errors.GradientError: a gradient needs a single number, but Z[i] has shape ...
    """


class PlanError(EinDecompError):
    """A plan cannot be made as asked, or a plan file is not valid.

    Examples:
        >>> import eindecomp as ed
        >>> ed.plan(ed.parse("input X[i: 3]\\nZ[i] <- 2 * X[i]\\noutput Z"), devices=0)
        Traceback (most recent call last):
        eindecomp.errors.PlanError: ...
    """


class RelationError(EinDecompError):
    """Tensor relations do not fit each other, or what is asked of them."""


class ProblemError(EinDecompError):
    """A problem or a choice is not well formed.

    Examples:
        >>> import eindecomp as ed
        >>> ed.solve.Problem.of([[0, 3]]).cost_of([2])
        Traceback (most recent call last):
        eindecomp.errors.ProblemError: variable 0 has no choice 2
    """


class InfeasibleError(EinDecompError):
    """No choice keeps within the usage limit and avoids every infinite cost.

    Args:
        message: What is infeasible, such as `"no plan fits"`.
        step: The tightest time step, such as `3`, as far as it is known.
        excess: How far at least it is over the limit, such as `1024`, as far as it is known.

    Examples:
        >>> import eindecomp as ed
        >>> problem = ed.solve.Problem.of([[1]], usage=[[2]], intervals=[[0, 1]], limit=1)
        >>> ed.solve.minimize(problem)
        Traceback (most recent call last):
        eindecomp.errors.InfeasibleError: ...
    """

    def __init__(self, message: str, step: int | None = None, excess: float | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.excess = excess


class UnsolvedError(EinDecompError):
    """No feasible choice was found in time, and none was proved not to exist.

    Examples:
        >>> import eindecomp as ed
        >>> isinstance(ed.solve.UnsolvedError("out of time"), ed.EinDecompError)
        True
    """


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name it is known by in messages."""

    text: str
    name: str = "<text>"

    def locate(self, offset: int) -> tuple[int, int]:
        """Give the line and column, both from 1, of a character offset.

        >>> Source("ab\\ncd").locate(4)
        (2, 2)
        """
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


class TextError(EinDecompError):
    """A `.ein` text is wrong at a known place: its `file`, `line` and `column`, and the `reason`.

    Args:
        message: What is wrong, such as `"unknown tensor 'Q'"`.
        source: The text and its name, such as `Source("Z[i] <- Q[i]", "a.ein")`.
        offset: The place in it, counted in characters from 0, such as `8`.

    Examples:
        >>> print(TextError("unknown tensor 'Q'", Source("Z[i] <- Q[i]", "a.ein"), 8))
        a.ein:1:9: unknown tensor 'Q'
          Z[i] <- Q[i]
                  ^
    """

    def __init__(self, message: str, source: Source, offset: int) -> None:
        self.line, self.column = source.locate(offset)
        message = shorten(message, 1000)  # a name in a text may be as long as the text
        self.reason = message
        self.file = source.name
        self._args = (message, source, offset)
        super().__init__(
            f"{source.name}:{self.line}:{self.column}: {message}\n{_caret(source.text, offset)}"
        )

    def __reduce__(self) -> tuple[type, tuple[str, Source, int]]:
        return TextError, self._args


class naming:  # noqa: N801 - used as a statement: `with naming(name):`
    """Puts a vertex's name before the errors of what makes it."""

    def __init__(self, name: str | None) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if self.name is None or not isinstance(error, EinDecompError):
            return
        [message] = error.args
        if not message.startswith(f"{self.name}: "):
            error.args = (f"{self.name}: {message}",)


EXTRAS = {
    "jax": "jax", "jaxlib": "jax", "mpi4py": "mpi", "ray": "ray", "safetensors": "models",
    "tokenizers": "models", "torch": "torch", "transformers": "", "zarr": "zarr",
}  # fmt: skip
"""The packages that not every user needs, each with the extra of ours that installs it, if any."""


class needing_extras:  # noqa: N801 - used as a statement: `with needing_extras():`
    """Says which extra to install where a package of one is imported, but not installed."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ModuleNotFoundError) and (name := _lacking(error)) is not None:
            raise not_installed(name) from None


def extra(package: str) -> Any:
    """A package of one of our extras, such as `zarr`, imported."""
    with needing_extras():
        return import_module(package)


def _lacking(error: ModuleNotFoundError) -> str | None:
    """The package of an extra that could not be imported, if that is what is wrong."""
    name = (error.name or "").partition(".")[0]
    return name if name in EXTRAS else None


def not_installed(package: str) -> InputError:
    """The error of whoever needs a package of an extra.

    >>> print(not_installed("mpi4py"))
    mpi4py is not installed: pip install 'eindecomp[mpi]'
    """
    offered = EXTRAS[package.partition(".")[0]]
    how = f"'eindecomp[{offered}]'" if offered else package
    return InputError(f"{package} is not installed: pip install {how}")


def check_whole(least: int = 1, **numbers: object) -> None:
    """Refuse what is not a whole number of at least `least`.

    >>> check_whole(batch=8, tokens=True)
    Traceback (most recent call last):
    eindecomp.errors.InputError: tokens must be 1 or more, not True
    """
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
            raise InputError(f"{name} must be {least} or more, not {number!r}")


def quote(value: object, most: int = 60) -> str:
    """What an error shows of a value that came from outside: its first characters.

    >>> quote("x" * 10_000, 8)
    "'xxxxxxx…"
    """
    try:
        return shorten(repr(value), most)
    except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return f"a {type(value).__name__} that is too large to show"


def shorten(text: str, most: int = 200) -> str:
    """A text cut to `most` characters, for messages that quote others.

    >>> shorten("abcdef", 4)
    'abcd…'
    """
    return text if len(text) <= most else f"{text[:most]}…"


def suggest(word: str, known: Iterable[str]) -> str:
    """End an 'unknown …' message with what may have been meant.

    >>> suggest("sofmax", ["softmax", "mean"])
    "; did you mean 'softmax'?"
    """
    known = sorted(known)
    match get_close_matches(word, known, n=1):
        case [best]:
            return f"; did you mean {best!r}?"
        case _:
            return f"; known: {', '.join(known)}" if 0 < len(known) <= 20 else ""


def _caret(text: str, offset: int, width: int = 100) -> str:
    """The line around `offset`, shortened to `width` characters, with a caret below the place."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    end = len(text) if end < 0 else end
    column = offset - start
    cut = max(0, column - width // 2)
    line = text[start + cut : min(end, start + cut + width)].replace("\t", " ")
    return f"  {line}\n  {' ' * (column - cut)}^"
