"""Combining with neutral states, safe whatever a user's definition makes of two of them.

Engines combine with the neutral state freely: to start, for tiles without a value, between lanes
and devices. Written the natural way, many a monoid cannot bear that: a log-sum-exp subtracts −∞
from −∞, a mean with its weight divides 0 by 0. For those, and only those, a neutral state is passed
over instead of combined, by the function that every engine combines with.
"""

from __future__ import annotations

from functools import lru_cache, reduce

import numpy as np

from eindecomp.lang.dtypes import Array, Types
from eindecomp.lang.monoid import BUILTIN, DOMAINS, SAMPLES, Monoid, combining
from eindecomp.lang.numpy_backend import cast
from eindecomp.lang.scalar import Arg, Const, Expr, call, from_values, values

State = list[Array]

_TRIALS = 64


@lru_cache(maxsize=2**10)
def safe_combine(monoid: Monoid, state: Types) -> Expr:
    """The expression that combines two states of the given types, even neutral ones.

    >>> from eindecomp.lang.monoid import monoid
    >>> from eindecomp.lang.dtypes import FLOAT32
    >>> lse = monoid("lse", "max(x, y) + log(1 + exp(min(x, y) - max(x, y)))", -np.inf)
    >>> print(safe_combine(lse, (FLOAT32,)))
    where(x == -inf, where(y == -inf, -inf, y), where(y == -inf, x, max(x, y) + log(1 + ...
    """
    if BUILTIN.get(monoid.name) == monoid:
        return monoid.combine
    marks = _fragile_marks(monoid, state)
    if marks is None:
        return monoid.combine
    k = monoid.width
    neutral = [Const(x.item()) for x in monoid.identity_for(state)]
    x_is, y_is = (_is_neutral(marks, neutral, start) for start in (0, k))
    return from_values([
        call(
            "where",
            x_is,
            call("where", y_is, neutral[j], Arg(k + j)),
            call("where", y_is, Arg(j), combined),
        )
        for j, combined in enumerate(values(monoid.combine))
    ])  # fmt: skip


def _is_neutral(marks: tuple[int, ...], neutral: list[Const], start: int) -> Expr:
    tests: list[Expr] = [call("eq", Arg(start + j), neutral[j]) for j in marks]
    return reduce(lambda a, b: call("and", a, b), tests)


def _fragile_marks(monoid: Monoid, state: Types) -> tuple[int, ...] | None:
    """The values by which a state is known as neutral; None where combining such states is safe.

    A maximum of −∞ marks the state (maximum, sum) of a softmax, and a weight of 0 that of a mean,
    whatever the other value is: combined with any other state it leaves that as it is.
    """
    everything = tuple(range(monoid.width))
    trial = _Trial(monoid, state)
    candidates = [(j,) for j in everything] if monoid.width > 1 else []
    marks = next((marks for marks in candidates if trial.leaves_others(marks)), everything)
    return None if trial.bears(marks) else marks


class _Trial:
    """Combines samples in the state's own types, in which an identity may become infinite."""

    def __init__(self, monoid: Monoid, state: Types) -> None:
        self._combine = combining(monoid, state)
        self._types = state
        self._neutral = monoid.identity_for(state)

    def leaves_others(self, marks: tuple[int, ...]) -> bool:
        """Whether states with these values neutral change no state without, on some domain."""
        return any(self._leaves(marks, domain) for domain in DOMAINS)

    def _leaves(self, marks: tuple[int, ...], domain: Array) -> bool:
        x, y = self._marked(marks, domain, 0), self._draw(domain, 1)
        other = ~reduce(np.logical_and, (y[j] == self._neutral[j] for j in marks))
        return all(
            np.isclose(value, wanted, rtol=1e-4, atol=1e-6)[other].all()
            for combined in (self._combine(x, y), self._combine(y, x))
            for value, wanted in zip(combined, y, strict=True)
        )

    def bears(self, marks: tuple[int, ...]) -> bool:
        """Whether combining two states with these values neutral is neutral, and no NaN."""
        state = self._combine(self._marked(marks, SAMPLES, 0), self._marked(marks, SAMPLES, 1))
        is_number = all((value == value).all() for value in state)
        return is_number and all((state[j] == self._neutral[j]).all() for j in marks)

    def _marked(self, marks: tuple[int, ...], domain: Array, seed: int) -> State:
        state = self._draw(domain, seed)
        for j in marks:
            state[j] = np.full_like(state[j], self._neutral[j])
        return state

    def _draw(self, domain: Array, seed: int) -> State:
        rng = np.random.default_rng(seed)
        return [cast(rng.choice(domain, _TRIALS), t) for t in self._types]
