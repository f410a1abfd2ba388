"""Reading lines `label,label feature:value feature:value …` from bytes, in compiled code.

Points go into flat arrays; `ends` says where each point ends. An error is returned as a code and a
place, for the caller to report. Points without labels are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eindecomp.kernels.cpu.compiling.stored import compiled

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

FINE, NO_LABEL, LABEL, LABEL_RANGE, FEATURE, FEATURE_RANGE, TWICE, VALUE, NOT_FINITE, INEXACT = (
    range(10)
)
START, FIRST, REST = range(3)
"""The position in a line: before it, within its first number, after that."""
MESSAGES = {
    LABEL: "labels are whole numbers with commas between them, not {token!r}",
    LABEL_RANGE: "label {token} is outside 0 to {labels}",
    FEATURE: "expected feature:value, not {token!r}",
    FEATURE_RANGE: "the feature of {token} is outside 0 to {features}",
    TWICE: "the feature of {token} appears twice in the line",
    VALUE: "the value of {token!r} is no number",
    NOT_FINITE: "the value of {token!r} is not finite as float32",
}

_SPACE, _TAB, _RETURN, _LINE = (np.uint8(ord(c)) for c in " \t\r\n")
_COMMA, _COLON, _POINT, _PLUS, _MINUS = (np.uint8(ord(c)) for c in ",:.+-")
_ZERO, _NINE = np.uint8(ord("0")), np.uint8(ord("9"))
_SMALL_E, _SMALL_I, _SMALL_N = (np.uint8(ord(c)) for c in "ein")
_MOST = 1 << 40  # beyond any index; keeps sums of digits from overflowing
_EXACT = 1 << 53  # the largest mantissa that a double holds exactly, as all of _TENS
_TENS = np.array([10.0**k for k in range(23)])
_LARGEST = float(np.finfo(np.float32).max)


@compiled
def after_lines(text: Bytes, start: int, count: int) -> tuple[int, int]:
    """Where `count` lines from `start` on end, and how many of them there are."""
    found = 0
    for at in range(start, text.size):
        if text[at] == _LINE:
            found += 1
            if found == count:
                return at + 1, found
    return text.size, found


@compiled
def unlabelled_lines(
    text: Bytes, place: int, line: int, limit: int, into: Longs
) -> tuple[int, int, int]:
    """The numbers of lines without labels, up to line `limit`; the text may begin within a line.

    Returns where the text ends, as place in a line and line, and how many lines were found.
    """
    at, found = 0, 0
    while at < text.size and line < limit:
        byte = text[at]
        if (place == START and byte <= _SPACE) or (place == FIRST and byte == _COLON):
            into[found] = line
            found += 1
        elif place != REST and _ZERO <= byte <= _NINE:
            place = FIRST
            at += 1
            continue
        place = REST
        while at < text.size and text[at] != _LINE:
            at += 1
        if at < text.size:
            place = START
            line += 1
            at += 1
    return place, line, found


@compiled
def parse_lines(
    text: Bytes,
    keep: int,
    features: int,
    labels: int,
    seen: Longs,
    stamp: int,
    label_of: Ints,
    label_ends: Longs,
    feature_of: Ints,
    value_of: Floats,
    ends: Longs,
    slow: Longs,
) -> tuple[int, int, int]:
    """Fill the arrays; returns a code, its place in the text, and how many values are slow.

    Where all is fine the place is how many points there are: lines with labels. Features from
    `keep` on are checked but left out. `seen` has the stamp of the line in which each feature stood
    last; this text's lines are stamped from `stamp` on. Values that are not exact in
    doubles are left to the caller: `slow` has a row (number, first byte of feature:value, end).
    """
    at, line, points, pairs, named, slows = 0, 0, 0, 0, 0, 0
    while at < text.size:
        code, at, named = _labels(text, at, labels, label_of, named)
        labelled = code == FINE
        if not labelled and code != NO_LABEL:
            return code, at, slows
        before, slow_before = pairs, slows
        while True:
            at = _blanks(text, at)
            if at == text.size or text[at] == _LINE:
                break
            begin = at
            code, at, index = _index(text, at, features)
            if code != FINE:
                return code, begin, slows
            if seen[index] == stamp + line:
                return TWICE, begin, slows
            seen[index] = stamp + line
            code, at, value = _value(text, at)
            if code in (VALUE, NOT_FINITE):
                return code, begin, slows
            if index < keep:
                if code != FINE:
                    slow[slows, 0], slow[slows, 1], slow[slows, 2] = pairs, begin, at
                    slows += 1
                feature_of[pairs], value_of[pairs] = index, value
                pairs += 1
        if labelled:
            label_ends[points], ends[points] = named, pairs
            points += 1
        else:
            pairs, slows = before, slow_before
        line += 1
        at += 1
    return FINE, points, slows


@compiled
def _blanks(text: Bytes, at: int) -> int:
    while at < text.size and (text[at] == _SPACE or text[at] == _TAB or text[at] == _RETURN):
        at += 1
    return at


@compiled
def _is_end(text: Bytes, at: int) -> bool:
    return at == text.size or text[at] <= _SPACE


@compiled
def _digits(text: Bytes, at: int) -> tuple[int, int]:
    """Where the digits from here on end, and their number, up to _MOST."""
    total = 0
    while at < text.size and _ZERO <= text[at] <= _NINE:
        total = min(total * 10 + int(text[at] - _ZERO), _MOST)
        at += 1
    return at, total


@compiled
def _labels(text: Bytes, at: int, labels: int, into: Ints, named: int) -> tuple[int, int, int]:
    if _is_end(text, at):
        return NO_LABEL, at, named
    start = at
    while True:
        begin = at
        at, label = _digits(text, at)
        if at < text.size and text[at] == _COLON and begin == start:
            return NO_LABEL, start, named
        if at == begin or not (_is_end(text, at) or text[at] == _COMMA):
            return LABEL, start, named
        if label >= labels:
            return LABEL_RANGE, begin, named
        into[named] = label
        named += 1
        if _is_end(text, at):
            return FINE, at, named
        at += 1


@compiled
def _index(text: Bytes, at: int, features: int) -> tuple[int, int, int]:
    """Read `feature:`; the place is after the colon."""
    begin = at
    at, index = _digits(text, at)
    if at == begin or at == text.size or text[at] != _COLON:
        return FEATURE, begin, 0
    if index >= features:
        return FEATURE_RANGE, begin, 0
    return FINE, at + 1, index


@compiled
def _after_sign(text: Bytes, at: int) -> int:
    return at + (at < text.size and (text[at] == _MINUS or text[at] == _PLUS))


@compiled
def _value(text: Bytes, at: int) -> tuple[int, int, float]:
    """Read a decimal number; INEXACT stands for one that is well formed but not exact this way."""
    minus = at < text.size and text[at] == _MINUS
    at = _after_sign(text, at)
    if at < text.size and (text[at] | 32) in (_SMALL_I, _SMALL_N):
        return NOT_FINITE, at, 0.0
    mantissa, digits, scale = 0, 0, 0
    after_point = False
    while at < text.size and (
        _ZERO <= text[at] <= _NINE or (text[at] == _POINT and not after_point)
    ):
        if text[at] == _POINT:
            after_point = True
        else:
            digits += 1
            mantissa = min(mantissa * 10 + int(text[at] - _ZERO), _EXACT + 1)
            scale -= int(after_point)
        at += 1
    if digits > 0 and at < text.size and (text[at] | 32) == _SMALL_E:
        at, power = _exponent(text, at + 1)
        scale += power
        digits = digits if at else 0
    if digits == 0 or not _is_end(text, at):
        return VALUE, at, 0.0
    if mantissa > _EXACT or abs(scale) > 22:
        return INEXACT, at, 0.0
    value = mantissa / _TENS[-scale] if scale < 0 else mantissa * _TENS[scale]
    if value > _LARGEST:
        return NOT_FINITE, at, 0.0
    return FINE, at, -value if minus else value


@compiled
def _exponent(text: Bytes, at: int) -> tuple[int, int]:
    """Where a power of ten ends, 0 if there is none, and the power."""
    down = at < text.size and text[at] == _MINUS
    begin = _after_sign(text, at)
    end, power = _digits(text, begin)
    return 0 if end == begin else end, -power if down else power


@compiled
def spread(
    rows: Longs, starts: Longs, ends: Longs, feature_of: Ints, value_of: Floats, out: Any
) -> None:
    """Write chosen points into the rows of a dense array of zeros."""
    for row, point in enumerate(rows):
        for k in range(starts[point], ends[point]):
            out[row, feature_of[k]] = value_of[k]
