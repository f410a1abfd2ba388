"""Unchecked JSON: a value with its place in the file, and the formats of our own files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from eindecomp.errors import EinDecompError, PlanError, quote, shorten, suggest
from eindecomp.layout.mesh import NAME_LENGTH

_SHOWN = 60
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Field:
    """Each method returns the value as the type it must have, or raises an error naming its place.

    >>> Field({"mesh": [["gpu", 2.5]]})["mesh"].items()[0].items()[1].whole(1)
    Traceback (most recent call last):
    eindecomp.errors.PlanError: mesh.0.1: must be a whole number, 1 or more, not 2.5
    """

    value: Any
    place: str = ""

    def wrong(self, why: str) -> PlanError:
        """The error that says what is wrong here."""
        why = shorten(why, 1000)  # it may quote the file
        return PlanError(f"{self.place}: {why}" if self.place else why)

    @contextmanager
    def named(self) -> Generator[None]:
        """Name this place in errors about a value that was read here."""
        try:
            yield
        except EinDecompError as error:
            raise self.wrong(str(error)) from None

    def if_any(self, read: Callable[[Field], T]) -> T | None:
        """The value as `read` reads it, or None for null."""
        return None if self.value is None else read(self)

    def __getitem__(self, name: str) -> Field:
        """A member of an object."""
        value = self.object()
        if name not in value:
            raise self._at(name).wrong("is missing")
        return Field(value[name], self._at(name).place)

    def object(self) -> dict[str, Any]:
        """An object, of whose members nothing is known."""
        if not isinstance(self.value, dict):
            raise self._not("an object")
        return cast("dict[str, Any]", self.value)

    def members(self) -> list[tuple[str, Field]]:
        """All members of an object."""
        return [(name, self[name]) for name in self.object()]

    def check_names(
        self, names: Sequence[str], unknown: str = "there is no field", optional: Sequence[str] = ()
    ) -> None:
        """Check that an object has these members, and no others but the optional ones."""
        known = {*names, *optional}
        for name in self.object():
            if name not in known:
                raise self.wrong(f"{unknown} {name[:_SHOWN]!r}{suggest(name[:_SHOWN], known)}")
        for name in names:
            _ = self[name]

    def items(self, count: int | None = None, what: str = "") -> list[Field]:
        """The items of a list; if it must have `count`, `what` says which."""
        if not isinstance(self.value, list):
            raise self._not("a list")
        listed = cast("list[Any]", self.value)
        if count is not None and len(listed) != count:
            raise self.wrong(f"must be {what}")
        return [Field(item, self._at(str(k)).place) for k, item in enumerate(listed)]

    def text(self) -> str:
        """A short text that can be shown."""
        if not isinstance(self.value, str):
            raise self._not("a text")
        if not self.value.isprintable() or len(self.value) > NAME_LENGTH:
            raise self._not("a short text of printable characters")
        return self.value

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self._not("true or false")
        return self.value

    def one_of(self, known: Sequence[str]) -> str:
        """One of several words."""
        if self.value not in known:
            raise self._not(f"one of {', '.join(known)}")
        return self.value

    def whole(self, least: int = 0, most: int | None = None) -> int:
        """A whole number within limits."""
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        if (
            not isinstance(self.value, int)
            or isinstance(self.value, bool)
            or self.value < least
            or (most is not None and self.value > most)
        ):
            raise self._not(f"a whole number, {limits}")
        return self.value

    def number(self) -> int | float:
        """A finite number, not negative."""
        if (
            not isinstance(self.value, int | float)
            or isinstance(self.value, bool)
            or not isfinite(self.value)
            or self.value < 0
        ):
            raise self._not("a number, 0 or more")
        return self.value

    def number_or_inf(self) -> float:
        """A number, 0 or more, or "inf", for which JSON has no number."""
        return inf if self.value == "inf" else self.number()

    def _at(self, name: str) -> Field:
        name = name[:_SHOWN]
        return Field(None, f"{self.place}.{name}" if self.place else name)

    def _not(self, wanted: str) -> PlanError:
        return self.wrong(f"must be {wanted}, not {quote(self.value)}")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file that we write: what it is called, its version and its fields."""

    what: str
    name: str
    version: int
    fields: tuple[str, ...]
    max_bytes: int

    def head(self) -> dict[str, Any]:
        """The fields that identify a file."""
        return {"format": self.name, "version": self.version}

    def load(self, path: str | Path, read: Callable[[Field], T]) -> T:
        """The content of a file, as `read` reads it."""
        with Path(path).open("rb") as file:
            return self.read(file.read(self.max_bytes + 1), str(path), read)

    def read(self, data: bytes, name: str, read: Callable[[Field], T]) -> T:
        """The content of JSON, as `read` reads it; `name` is what errors call it."""
        try:
            return read(self._root(data))
        except PlanError as error:
            raise PlanError(f"{name}: {error}") from None

    def _root(self, data: bytes) -> Field:
        if len(data) > self.max_bytes:
            raise PlanError(f"a {self.what} file has at most {self.max_bytes >> 20} MiB")
        try:
            root = Field(orjson.loads(data))
        except orjson.JSONDecodeError as error:
            raise PlanError(f"not JSON: {error}") from None
        if not isinstance(root.value, dict) or "format" not in root.value:
            raise PlanError(f'not a {self.what}: it has no "format": "{self.name}"')
        root["format"].one_of((self.name,))
        version = root["version"].whole(1)
        if version != self.version:
            age = "newer" if version > self.version else "older"
            raise PlanError(
                f"version {version} of {self.what} files is {age} than this program, which reads "
                f"{self.version}"
            )
        root.check_names(("format", "version", *self.fields))
        return root
