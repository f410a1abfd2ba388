"""Reads the JSON files of a Hugging Face folder field by field, as they may hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eindecomp.errors import InputError, quote, shorten

_MAX_BYTES = 1 << 26
_REQUIRED = object()


def check_folder(folder: str | Path) -> Path:
    """The path of a folder, which must exist."""
    try:
        path = Path(folder)
    except TypeError:
        raise InputError(
            f"a model is in a folder, named by its path, not {quote(folder)}"
        ) from None
    if not path.is_dir():
        raise InputError(f"{path} is no folder: give one with config.json and model.safetensors")
    return path


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} is missing") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise InputError(f"{path} is over {_MAX_BYTES >> 20} MiB")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no JSON file: {shorten(str(error))}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no JSON object")
    return found  # pyright: ignore[reportUnknownVariableType]


class Fields:
    """The fields of an object, each checked for its type; null counts as absent."""

    def __init__(self, where: Path, values: dict[str, Any], prefix: str = "") -> None:
        self.where, self.values, self.prefix = where, values, prefix

    def __contains__(self, name: str) -> bool:
        """Whether the field is present, even if it is null."""
        return name in self.values

    def given(self, name: str) -> Any:
        """The value as it is, None if absent."""
        return self.values.get(name)

    def integer(self, name: str, default: object = _REQUIRED) -> int:
        """A whole number."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "an integer")
        return value

    def number(self, name: str, default: object = _REQUIRED) -> float:
        """A number that fits a float."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong(name, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(name, "a number that fits a float") from None

    def text(self, name: str) -> str | None:
        """A text, or None."""
        value = self._value(name, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def truth(self, name: str) -> bool:
        """True or false; false if absent."""
        value = self._value(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def inner(self, name: str) -> Fields:
        """An object within this one, empty if absent."""
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(self.where, value, f"{name}.")  # pyright: ignore[reportUnknownArgumentType]

    def __bool__(self) -> bool:
        return bool(self.values)

    def wrong(self, name: str, expected: str) -> InputError:
        """The error for a field that is not what it must be."""
        value = quote(self.values.get(name))
        return InputError(f"{self.where}: {self.prefix}{name} is {value}, not {expected}")

    def _value(self, name: str, default: object) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is _REQUIRED:
                raise InputError(f"{self.where}: {self.prefix}{name} is missing")
            return default
        return value
