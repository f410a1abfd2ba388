"""`Index`: where a dimension is read: a sum of labels, and what stands outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eindecomp.errors import ExpressionError
from eindecomp.lang.names import check_label

CLAMP = "clamp"
LARGEST = 2**62

Outside = int | float | str | None
"""What stands for elements outside a tensor: a number; `"clamp"`, the nearest one inside; or None,
where none are read."""


@dataclass(frozen=True, slots=True)
class Index:
    """The place `(Σ times · label + offset) / divisor` along a dimension.

    Where that is no whole number, or outside the dimension, `outside` says what is read.

    >>> print(Index((("w", 2), ("r", 1)), -1, outside=0))
    2*w + r - 1 else 0
    """

    terms: tuple[tuple[str, int], ...]
    offset: int = 0
    divisor: int = 1
    outside: Outside = None

    def __post_init__(self) -> None:
        labels = [check_label(label) for label, _ in self.terms]
        if len(set(labels)) < len(labels):
            raise ExpressionError(f"a label appears twice in the index {self}")
        if self.divisor < 1 or any(times == 0 for _, times in self.terms):
            raise ExpressionError(f"the index {self} has a factor of 0, or divides by less than 1")
        if max(abs(self.offset), self.divisor, *(abs(times) for _, times in self.terms)) > LARGEST:
            raise ExpressionError(f"a number of the index {self} is too large")
        if self.divisor > 1 and (self.outside is None or self.outside == CLAMP):
            raise ExpressionError(f"the index {self} divides: say what stands between, 'else 0'")
        is_number = isinstance(self.outside, int | float) and self.outside == self.outside
        if not (self.outside is None or self.outside == CLAMP or is_number):
            raise ExpressionError(f"outside lies a number or 'clamp', not {self.outside!r}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that move it."""
        return tuple(label for label, _ in self.terms)

    @property
    def alone(self) -> str | None:
        """The label that it is, if it is nothing else."""
        match self:
            case Index(((label, 1),), 0, 1, None):
                return label
            case _:
                return None

    def reach(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """The least and the greatest sum, before it is divided, for labels of these sizes."""
        return self.within({label: (0, sizes[label]) for label in self.labels})

    def within(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """The same where labels go from one number to before another."""
        low = high = self.offset
        for label, times in self.terms:
            first, last = ranges[label][0] * times, (ranges[label][1] - 1) * times
            low, high = low + min(first, last), high + max(first, last)
        return low, high

    def __str__(self) -> str:
        told = "".join(_term(label, times) for label, times in self.terms)
        if told.startswith(" + ") and self.offset:
            told = f"{told[3:]} {'-' if self.offset < 0 else '+'} {abs(self.offset)}"
        elif told.startswith(" + "):
            told = told[3:]
        else:
            told = f"{self.offset}{told}"
        if self.divisor > 1:
            is_sum = len(self.terms) + bool(self.offset) > 1 or told.startswith("0 - ")
            told = f"({told}) / {self.divisor}" if is_sum else f"{told} / {self.divisor}"
        return told if self.outside is None else f"{told} else {self.outside}"


def _term(label: str, times: int) -> str:
    shown = label if abs(times) == 1 else f"{abs(times)}*{label}"
    return f" {'-' if times < 0 else '+'} {shown}"


def index_of(
    terms: Mapping[str, int], offset: int = 0, divisor: int = 1, outside: Outside = None
) -> Index:
    """The index of a sum, labels that are added before those that are taken away.

    >>> print(index_of({"i": -1, "j": 1}, 9))
    j - i + 9
    """
    ordered = sorted(((x, n) for x, n in terms.items() if n), key=lambda each: each[1] < 0)
    return Index(tuple(ordered), offset, divisor, outside)
