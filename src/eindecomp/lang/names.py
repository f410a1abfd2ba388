"""Which words may name tensors, scalars, labels, macros and monoids."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from eindecomp.errors import ExpressionError

IDENTIFIER = re.compile(r"[^\W\d]\w*")
DOTTED = re.compile(r"[^\W\d]\w*(\.\w+)*")
OPERATOR_WORDS = frozenset({"and", "or", "not", "in"})
CONSTANTS: Mapping[str, bool | float] = {
    "inf": math.inf, "nan": math.nan, "pi": math.pi, "true": True, "false": False,
}  # fmt: skip
KEYWORDS = OPERATOR_WORDS | CONSTANTS.keys() | {
    "input", "scalar", "output", "macro", "monoid", "fill", "concat",
    "identity", "finish", "grad", "with", "result", "size",
    "complex",
}  # fmt: skip
"""Words the text syntax uses itself; labels only have to avoid the operators."""
MAX_LENGTH = 200


def check_name(name: str, what: str) -> str:
    """Return `name` if it can name a `what` ('tensor', 'scalar', …) in the text syntax."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ExpressionError(f"{name!r} cannot name a {what}: a name is a string")
    dots = what == "tensor"
    if not _is_identifier(name, DOTTED if dots else IDENTIFIER):
        more = ", of a tensor also several such words with dots between" if dots else ""
        raise ExpressionError(
            f"{name[:MAX_LENGTH]!r} cannot name a {what}: a name is a letter or underscore, "
            f"then letters, digits and underscores, {MAX_LENGTH} at most{more}"
        )
    if name in KEYWORDS:
        raise ExpressionError(f"{name!r} cannot name a {what}: it is a word of the language")
    return name


@lru_cache(maxsize=2**14)
def check_label(label: str) -> str:
    """Return `label` if it is one."""
    if not _is_identifier(label) or label in OPERATOR_WORDS:
        raise ExpressionError(f"{label[:MAX_LENGTH]!r} is not a label: a label is an identifier")
    return label


def _is_identifier(name: str, form: re.Pattern[str] = IDENTIFIER) -> bool:
    return len(name) <= MAX_LENGTH and form.fullmatch(name) is not None
