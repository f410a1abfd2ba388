"""Showing how an index that is computed, such as X[b, w + r], is written as a gather."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from eindecomp.errors import EinDecompError
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.text import syntax as s
from eindecomp.lang.text.resolve import parse_expr
from eindecomp.lang.text.terms import label_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_GUESS = 3
"""The size of a label that nothing sizes, beside the one that is fitted to the tensor."""
_MOST = 10_000
_SIZE = re.compile(r"\bsize\((\w+)\)")


def as_gather(
    ref: s.Ref, item: s.Arithmetic, size: int, declared: Mapping[str, set[int]], name: str
) -> str:
    """Two lines of text: the indices as a fill, and the reference that looks them up.

    >>> window = s.Arithmetic("w + r", ("w", "r"), 0)
    >>> ref = s.Ref("X", (s.Label("b", 0), window), 0)
    >>> print(as_gather(ref, window, 8, {"r": {3}}, "at"))
      at[w: 6, r: 3] <- fill w + r
      … X[b, at[w,r]] …
    """
    sizes = {label: min(known) for label in item.labels if (known := declared.get(label))}
    unknown = [label for label in item.labels if label not in sizes]
    sizes |= dict.fromkeys(unknown[1:], min(_GUESS, size))
    largest = range(min(size, _MOST), 0, -1)
    tried = [{**sizes, unknown[0]: n} for n in largest] if unknown else [sizes]
    known = {label: min(several) for label, several in declared.items()}
    found = next((one for one in tried if _is_inside(item, known | one, size)), None)
    value = item.text
    if found is None:
        found, value = tried[0], f"min(max({item.text}, 0), {size - 1})"
    declaration = ", ".join(f"{label}: {found[label]}" for label in item.labels)
    inner = f"{name}[{','.join(item.labels)}]"
    items = ", ".join(inner if other is item else _shown(other) for other in ref.items)
    return f"  {name}[{declaration}] <- fill {value}\n  … {ref.name}[{items}] …"


def _is_inside(item: s.Arithmetic, sizes: Mapping[str, int], size: int) -> bool:
    """Whether all indices are within a dimension, judged at the ends of the labels."""
    ends = [sorted({0, sizes[label] - 1}) for label in item.labels]
    try:
        text = _SIZE.sub(lambda found: str(sizes.get(found[1], found[0])), item.text)
        function = compile_scalar(parse_expr(text, item.labels), len(ends), NUMPY)
        return all(0 <= function(*corner) < size for corner in itertools.product(*ends))
    except EinDecompError:
        return False


def _shown(item: s.Item) -> str:
    return label_of(item) or "…"
