"""Reading the JSON files of a Hugging Face folder, which may hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from eindecomp.errors import InputError
from eindecomp.models.llama.config import DTYPES, Config, RopeScaling

_MAX_BYTES = 1 << 26
_REQUIRED = object()


def read_config(folder: str | Path) -> Config:
    """The configuration of the model in a folder."""
    path = check_folder(folder) / "config.json"
    read = _Fields(path, read_json(path))
    _refuse_what_is_not_llama(read)
    heads = read.integer("num_attention_heads")
    width = read.integer("hidden_size")
    if heads < 1 or (read.given("head_dim") is None and width % heads):
        raise InputError(f"{path}: hidden_size {width} is no multiple of {heads} heads")
    rope = read.inner("rope_scaling") or read.inner("rope_parameters")
    stored = read.text("dtype") or read.text("torch_dtype") or "float32"
    try:
        return Config(
            vocabulary=read.integer("vocab_size"),
            width=width,
            layers=read.integer("num_hidden_layers"),
            heads=heads,
            kv_heads=read.integer("num_key_value_heads", heads),
            head_size=read.integer("head_dim", width // heads),
            hidden=read.integer("intermediate_size"),
            epsilon=read.number("rms_norm_eps", 1e-6),
            theta=rope.number("rope_theta", read.number("rope_theta", 10000.0)),
            scaling=_scaling(rope),
            positions=read.integer("max_position_embeddings", 2048),
            tied=read.truth("tie_word_embeddings"),
            dtype=stored if stored in DTYPES else "float32",
        )
    except InputError as error:
        if str(error).startswith(str(path)):
            raise
        raise InputError(f"{path}: {error}") from None


def read_stops(folder: str | Path) -> frozenset[int]:
    """The tokens that end a text, by `generation_config.json` or else `config.json`."""
    for name in ("generation_config.json", "config.json"):
        path = Path(folder) / name
        if name == "config.json" or path.exists():
            ids: Any = read_json(path).get("eos_token_id")
            found = cast(
                "list[Any]", ids if isinstance(ids, list) else [] if ids is None else [ids]
            )
            if not all(isinstance(x, int) and not isinstance(x, bool) for x in found):
                raise InputError(f"{path}: eos_token_id is {ids!r}, not token numbers")
            if found:
                return frozenset(found)
    return frozenset()


def check_folder(folder: str | Path) -> Path:
    """The folder, which must be one."""
    path = Path(folder)
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
        raise InputError(f"{path} is no JSON file: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no JSON object")
    return found  # pyright: ignore[reportUnknownVariableType]


class _Fields:
    """The fields of an object, each read as what it must be."""

    def __init__(self, where: Path, values: dict[str, Any], prefix: str = "") -> None:
        self.where, self.values, self.prefix = where, values, prefix

    def given(self, name: str) -> Any:
        return self.values.get(name)

    def integer(self, name: str, default: object = _REQUIRED) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "an integer")
        return value

    def number(self, name: str, default: object = _REQUIRED) -> float:
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong(name, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(name, "a number of usual size") from None

    def text(self, name: str) -> str | None:
        value = self._value(name, None)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def truth(self, name: str) -> bool:
        value = self._value(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def inner(self, name: str) -> _Fields:
        value = self._value(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return _Fields(self.where, value, f"{name}.")  # pyright: ignore[reportUnknownArgumentType]

    def __bool__(self) -> bool:
        return bool(self.values)

    def wrong(self, name: str, expected: str) -> InputError:
        value = self.values.get(name)
        return InputError(f"{self.where}: {self.prefix}{name} is {value!r}, not {expected}")

    def _value(self, name: str, default: object) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is _REQUIRED:
                raise InputError(f"{self.where}: {self.prefix}{name} is missing")
            return default
        return value


def _refuse_what_is_not_llama(read: _Fields) -> None:
    expected = {
        "model_type": ("llama",),
        "hidden_act": ("silu", None),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "quantization_config": (None,),
    }
    for name, known in expected.items():
        if read.given(name) not in known:
            raise InputError(
                f"{read.where}: {name} is {read.given(name)!r}; only {known[0]!r} is supported"
            )


def _scaling(rope: _Fields) -> RopeScaling | None:
    kind = rope.given("rope_type") or rope.given("type") or "default"
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise rope.wrong("partial_rotary_factor", "1: heads rotate as a whole")
    if kind == "default":
        return None
    if kind != "llama3":
        raise InputError(
            f"{rope.where}: rope scaling {kind!r} is not supported; 'default' and 'llama3' are"
        )
    return RopeScaling(
        rope.number("factor"),
        rope.number("low_freq_factor"),
        rope.number("high_freq_factor"),
        rope.integer("original_max_position_embeddings"),
    )
