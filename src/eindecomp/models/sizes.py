"""Checks the sizes that models and data are made with."""

from __future__ import annotations

from numbers import Integral

from eindecomp.errors import InputError


def check_whole(least: int = 1, **numbers: object) -> None:
    """Refuse what is not a whole number of at least `least`.

    >>> check_whole(batch=8, tokens=True)
    Traceback (most recent call last):
    eindecomp.errors.InputError: tokens must be 1 or more, not True
    """
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
            raise InputError(f"{name} must be {least} or more, not {number!r}")
