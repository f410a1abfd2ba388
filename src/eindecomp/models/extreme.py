"""Batches from files of the extreme-classification repository, such as AmazonCat-13K.

The first line is `points features labels`; each further line is a point, `3,17 0:0.5 12:1.25 …`:
its labels and the features that are not zero. The file is read from disk window by window, so that
memory does not depend on its length. Points are shuffled within a window by the seed, and whatever
is drawn depends only on the seed, the epoch and the window, so reading can start at any batch.
Points without a label teach nothing and are skipped; one pass over the file, when it is opened,
finds them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from eindecomp.errors import InputError
from eindecomp.models.parse_extreme import (
    FINE,
    MESSAGES,
    NOT_FINITE,
    START,
    after_lines,
    parse_lines,
    spread,
    unlabelled_lines,
)
from eindecomp.models.sizes import check_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = np.ndarray[Any, Any]

_CHUNK = 1 << 22  # bytes read at once
_LONGEST = 1 << 24  # bytes of the longest line that is accepted
_MOST = 2**31 - 1
_LARGEST = float(np.finfo(np.float32).max)
Target = Literal["first", "random"]


def _none() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ExtremeFile:
    """A file of sparse points, as dense batches `x` of its first features and class numbers `y`.

    Args:
        path: The file, such as `Path("train.txt")`.
        batch: The points of a batch, such as `512`.
        points: How many points of the file have a label, such as `1186239`.
        features: How many features a batch has, such as `1000`: all of the file's, or its first
            ones.
        classes: How many classes there are, such as `13330`.
        file_features: How many features the file has, such as `203882`.
        window: The points within which they are shuffled, such as `8192`.
        seed: That of the shuffle, such as `0`.
        shuffle: Whether points are shuffled, such as `True`.
        target: Which of a point's labels is its class: the `"first"` or a `"random"` one.
        epochs: How often the file is read, such as `3`; None for without end.
        skipped: For each point without a label, the number of labelled points before it, such as
            `np.array([4, 4])`.

    Examples:
        >>> import tempfile
        >>> from eindecomp.models.synthetic import Synthetic
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Synthetic(4, 10, 3).write(f"{folder}/points.txt", 8)
        ...     extreme_file(f"{folder}/points.txt", batch=4).batches_per_epoch
        2
    """

    path: Path
    batch: int
    points: int
    features: int
    classes: int
    file_features: int
    window: int
    seed: int
    shuffle: bool
    target: Target
    epochs: int | None
    skipped: NDArray[np.int64] = field(default_factory=_none, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(batch=self.batch, window=self.window, features=self.features)
        check_whole(epochs=1 if self.epochs is None else self.epochs)
        check_whole(0, seed=self.seed)
        if self.target not in ("first", "random"):
            raise InputError(f"target is 'first' or 'random', not {self.target!r}")
        if self.points < self.batch:
            kind = "labelled points" if self.unlabelled else "points"
            raise InputError(
                f"{self.path}: {self.points} {kind} are less than a batch of {self.batch}"
            )
        if self.features > self.file_features:
            raise InputError(f"{self.path}: has {self.file_features} features, not {self.features}")

    @property
    def unlabelled(self) -> int:
        """The number of points without a label, which are skipped."""
        return len(self.skipped)

    @property
    def batches_per_epoch(self) -> int:
        """Whole batches in one pass; left-over points are not used in that pass."""
        return self.points // self.batch

    def batches(self, start: int = 0) -> Iterator[dict[str, Array]]:
        """The batches from one on, through all epochs.

        Args:
            start: The number of the first, such as `0`.
        """
        check_whole(0, start=start)
        first, within = divmod(start, self.batches_per_epoch)
        window, skip = divmod(within * self.batch, self.window)
        for epoch in count(first):
            if self.epochs is not None and epoch >= self.epochs:
                return
            try:
                yield from self._epoch(epoch, window, skip)
            except MemoryError:
                raise InputError(
                    f"{self.path}:1: {self.file_features} features do not fit in memory"
                ) from None
            window = skip = 0

    def _epoch(self, epoch: int, first: int, skip: int) -> Iterator[dict[str, Array]]:
        with self.path.open("rb") as file:
            lines = _Lines(file, self.path)
            lines.take(1)
            for number in range(first):
                lines.take(self._lines_of(number))
            # Lines are numbered from 1. Pages that are never written take no memory, so a wrong
            # number of features in the header does no harm.
            seen = np.zeros(self.file_features, np.int64)
            for number in range(first, -(-self.points // self.window)):
                before = lines.taken
                points = self._parse(lines.take(self._lines_of(number)), before, seen)
                rng = np.random.default_rng([self.seed, epoch, number])
                yield from self._window(points, rng, skip)
                skip = 0
            if left := self.points + self.unlabelled + 1 - lines.taken:
                self._parse(lines.take(left), lines.taken - left, seen)
            if lines.rest().strip():
                raise InputError(
                    f"{self.path}:{lines.taken + 1}: more lines than the {lines.taken - 1} points "
                    "that the first line announces"
                )

    def _lines_of(self, window: int) -> int:
        """The number of lines of a window, skipped ones before its last point included."""
        first = window * self.window
        end = min(first + self.window, self.points)
        skips = np.searchsorted(self.skipped, [first, end])
        return end - first + int(skips[1] - skips[0])

    def _window(
        self, points: _Points, rng: np.random.Generator, skip: int
    ) -> Iterator[dict[str, Array]]:
        size = len(points.ends)
        order = rng.permutation(size) if self.shuffle else np.arange(size)
        classes = points.classes(rng if self.target == "random" else None)
        starts = np.concatenate([[0], points.ends[:-1]])
        for at in range(skip, size - self.batch + 1, self.batch):
            rows = order[at : at + self.batch]
            x = np.zeros((self.batch, self.features), np.float32)
            spread(rows, starts, points.ends, points.features, points.values, x)
            yield {"x": x, "y": classes[rows]}

    def _parse(self, text: bytes, before: int, seen: NDArray[np.int64]) -> _Points:
        """The points of some lines; `before` is the number of lines before them."""
        lines = text.count(b"\n") + (not text.endswith(b"\n"))
        pairs = text.count(b":")
        labels = np.empty(text.count(b",") + lines, np.int32)
        points = _Points(
            labels,
            np.empty(lines, np.int64),
            np.empty(pairs, np.int32),
            np.empty(pairs, np.float32),
            np.empty(lines, np.int64),
        )
        slow = np.empty((pairs, 3), np.int64)
        code, place, slows = parse_lines(
            np.frombuffer(text, np.uint8),
            self.features,
            self.file_features,
            self.classes,
            seen,
            before,
            points.labels,
            points.label_ends,
            points.features,
            points.values,
            points.ends,
            slow,
        )
        if code != FINE:
            raise self._wrong(text, before, code, place)
        points = replace(points, label_ends=points.label_ends[:place], ends=points.ends[:place])
        for number, first, end in slow[:slows].tolist():
            value = float(text[first:end].partition(b":")[2])
            if abs(value) > _LARGEST:
                raise self._wrong(text, before, NOT_FINITE, first)
            points.values[number] = value
        return points

    def _wrong(self, text: bytes, before: int, code: int, place: int) -> InputError:
        line = before + text.count(b"\n", 0, place) + 1
        column = place - (text.rfind(b"\n", 0, place) + 1)
        words = text[place : place + 40].split(maxsplit=1)
        token = words[0].decode("ascii", "backslashreplace") if words else ""
        said = MESSAGES[code].format(
            token=token, labels=self.classes - 1, features=self.file_features - 1
        )
        return InputError(f"{self.path}:{line}:{column + 1}: {said}")


@dataclass(frozen=True, slots=True)
class _Points:
    """Points in flat arrays; `ends` and `label_ends` say where each point ends."""

    labels: NDArray[np.int32]
    label_ends: NDArray[np.int64]
    features: NDArray[np.int32]
    values: NDArray[np.float32]
    ends: NDArray[np.int64]

    def classes(self, rng: np.random.Generator | None) -> NDArray[np.int32]:
        """One label of each point: its first, or a random one."""
        starts = np.concatenate([[0], self.label_ends[:-1]])
        if rng is None:
            return self.labels[starts]
        drawn = rng.random(len(starts)) * (self.label_ends - starts)
        return self.labels[starts + drawn.astype(np.int64)]


class _Lines:
    """A file that is read a number of lines at a time."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file, self.path = file, path
        self.taken = 0
        self._buffer = b""

    def take(self, lines: int) -> bytes:
        """The next lines; the last line of the file need not end with a line break."""
        parts: list[bytes] = []
        left, unbroken = lines, 0
        while True:
            end, found = after_lines(np.frombuffer(self._buffer, np.uint8), 0, left)
            parts.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
            left -= found
            if not left:
                break
            unbroken = end + (0 if found else unbroken)
            if unbroken > _LONGEST:
                where = self.taken + lines - left + 1
                raise InputError(f"{self.path}:{where}: a line of more than {_LONGEST} bytes")
            self._buffer = self.file.read(_CHUNK)
            if not self._buffer:
                break
        text = b"".join(parts)
        is_open = bool(text) and not text.endswith(b"\n")
        if left - is_open > 0:
            where = self.taken + lines - left + is_open
            raise InputError(
                f"{self.path}:{where}: the file ends after {max(where - 1, 0)} points, "
                "fewer than the first line announces: it is cut off"
            )
        self.taken += lines
        return text

    def rest(self) -> bytes:
        """Some of what follows; empty at the end of the file."""
        return self._buffer + self.file.read(_CHUNK)


def extreme_file(
    path: str | Path,
    batch: int,
    *,
    features: int | None = None,
    window: int = 8192,
    seed: int = 0,
    shuffle: bool = True,
    target: Target = "first",
    epochs: int | None = None,
) -> ExtremeFile:
    """Open a file in the extreme-classification format as batches for `models.fit`.

    Points without a label are skipped; a warning and `.unlabelled` give their number.

    Args:
        path: The file, such as `"train.txt"`.
        batch: The points of a batch, such as `512`.
        features: How many to keep, from the first, such as `1000`; by default all.
        window: The points within which they are shuffled, such as `8192`, rounded up to a multiple
            of the batch.
        seed: That of the shuffle, such as `0`.
        shuffle: Whether points are shuffled, such as `True`.
        target: Which label of several is a point's class: its `"first"`, or one drawn at
            `"random"`, afresh in every epoch.
        epochs: How often the file is read, such as `3`; by default without end.

    Raises:
        InputError: The file is not in this format; the message names the line.

    Examples:
        >>> import tempfile
        >>> from eindecomp.models.synthetic import Synthetic
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Synthetic(4, 10, 3).write(f"{folder}/points.txt", 8)
        ...     extreme_file(f"{folder}/points.txt", batch=4, features=5).features
        5
    """
    path = Path(path)
    check_whole(batch=batch, window=window)
    announced, known, classes = _header(path)
    skipped = _unlabelled(path, announced)
    points = announced - len(skipped)
    if len(skipped):
        told = f"{path}: {len(skipped)} of {announced} points have no label and are skipped"
        warnings.warn(told, RuntimeWarning, stacklevel=2)
    window = -(-window // batch) * batch
    kept = known if features is None else features
    return ExtremeFile(
        path, batch, points, kept, classes, known, window, seed, shuffle, target, epochs, skipped
    )


def _unlabelled(path: Path, points: int) -> NDArray[np.int64]:
    """For each point without a label, the number of labelled points before it."""
    found: list[NDArray[np.int64]] = []
    place, line = START, 0
    with path.open("rb") as file:
        file.readline()
        while line < points and (text := file.read(_CHUNK)):
            lines = np.empty(text.count(b"\n") + 1, np.int64)
            place, line, count = unlabelled_lines(
                np.frombuffer(text, np.uint8), place, line, points, lines
            )
            found.append(lines[:count])
    numbers = np.concatenate([_none(), *found])
    return numbers - np.arange(len(numbers))


def _header(path: Path) -> tuple[int, int, int]:
    try:
        with path.open("rb") as file:
            line = file.readline(200)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    words = line.split()
    if len(words) != 3 or not all(word.isdigit() and len(word) < 11 for word in words):
        shown = line[:60].decode("ascii", "backslashreplace").rstrip()
        raise InputError(f"{path}:1: expected `points features labels`, not {shown!r}")
    points, features, labels = map(int, words)
    if min(points, features, labels) < 1 or max(features, labels) > _MOST:
        raise InputError(f"{path}:1: {points} points, {features} features, {labels} labels")
    return points, features, labels
