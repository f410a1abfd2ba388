"""The JSON files of a Hugging Face folder, field by field, as they may hold anything.

`config.json` gives what transformers would make of it, or an error; `generation_config.json` stop
tokens, and settings that we do not have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from eindecomp.errors import InputError, quote, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_BYTES = 1 << 26
_KINDS: dict[type[Any], str] = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "an object",
}
T = TypeVar("T")


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

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A value of a kind, which is required unless there is a default."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise InputError(f"{self.where}: {self.prefix}{name} is missing")
            return default
        wide: Any = int | float if kind is float else kind
        if not isinstance(value, wide) or isinstance(value, bool) != (kind is bool):
            raise self.wrong(name, _KINDS[kind])
        try:
            return cast("Any", kind)(value)
        except OverflowError:
            raise self.wrong(name, "a number that fits a float") from None

    def inner(self, name: str) -> Fields:
        """An object within this one, empty if absent."""
        return Fields(self.where, self.get(name, dict, {}), f"{name}.")

    def __bool__(self) -> bool:
        return bool(self.values)

    def wrong(self, name: str, expected: str) -> InputError:
        """The error for a field that is not what it must be."""
        value = quote(self.values.get(name))
        return InputError(f"{self.where}: {self.prefix}{name} is {value}, not {expected}")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """LLaMA 3.1's stretching of slow rotations, so that more positions are distinguishable.

    Args:
        factor: By how much the slowest are slowed, such as `32.0`.
        low: Rotations with fewer turns than this over `positions` are slowed by the whole factor,
            such as `1.0`.
        high: Rotations with more turns than this are left unchanged, such as `4.0`.
        positions: The sequence length of the original training, such as `8192`.

    Examples:
        >>> RopeScaling(32.0, 1.0, 4.0, 8192).factor
        32.0
    """

    factor: float
    low: float
    high: float
    positions: int

    def __post_init__(self) -> None:
        if not self.factor >= 1 or not 0 < self.low < self.high or self.positions < 1:
            raise InputError(
                "rope scaling needs a factor of at least 1, 0 < low < high and 1 or more "
                f"positions, not {self}"
            )


# All that transformers reads from a configuration and that changes a LLaMA's numbers, sizes
# excepted, with the values for which it computes what we do. Only `model_type` is required.
_ONLY: dict[str, tuple[object, ...]] = {
    "model_type": ("llama",),
    "attribute_map": (None, {}),
    "hidden_act": ("silu", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "quantization_config": (None,),
    "is_causal": (True,),
    "is_encoder_decoder": (False, None),
    "per_layer_config": (None, {}),
    "num_kv_shared_layers": (None, 0),
    "partial_rotary_factor": (None, 1),
    "fusion_config": (None,),
    "transformers_weights": (None,),
    "text_config": (None,),
    "decoder": (None,),
    "generator": (None,),
}


def read_config(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """The path of a folder's `config.json`, and the arguments of `Config` that it gives."""
    path = check_folder(folder) / "config.json"
    read = Fields(path, read_json(path))
    _refuse_what_is_not_llama(read)
    heads = read.get("num_attention_heads", int)
    width = read.get("hidden_size", int)
    if heads < 1 or (read.given("head_dim") is None and width % heads):
        raise InputError(f"{path}: hidden_size {width} is no multiple of {heads} heads")
    rope = read.inner("rope_scaling") or read.inner("rope_parameters")
    positions = read.get("max_position_embeddings", int, 2048)
    return path, {
        "vocabulary": read.get("vocab_size", int),
        "width": width,
        "layers": read.get("num_hidden_layers", int),
        "heads": heads,
        "kv_heads": read.get("num_key_value_heads", int, heads),
        "head_size": read.get("head_dim", int, width // heads),
        "hidden": read.get("intermediate_size", int),
        "epsilon": read.get("rms_norm_eps", float, 1e-6),
        "theta": _theta(read, rope),
        "scaling": _scaling(read, rope, positions),
        "positions": positions,
        "tied": read.get("tie_word_embeddings", bool, False),
        "dtype": read.get("dtype", str, "") or read.get("torch_dtype", str, "float32"),
    }


def _refuse_what_is_not_llama(read: Fields) -> None:
    for name, known in _ONLY.items():
        if name != "model_type" and name not in read:
            continue
        if not any(_is_same(read.given(name), one) for one in known):
            raise InputError(
                f"{read.where}: {name} is {quote(read.given(name))}; only {known[0]!r} is supported"
            )
    # Tokens attend to all tokens before them: `layer_types` decides that, and a window only if
    # there are no layer types.
    kinds: Any = read.given("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or set(map(str, kinds)) != {"full_attention"}:  # pyright: ignore[reportUnknownArgumentType]
            raise read.wrong("layer_types", "'full_attention' throughout, all that is supported")
        return
    for name in ("sliding_window", "attention_chunk_size"):
        if read.given(name) is not None:
            raise InputError(
                f"{read.where}: {name} is {quote(read.given(name))}; only attention without a "
                "window is supported"
            )


def _is_same(value: object, other: object) -> bool:
    """Equality that distinguishes true from 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _theta(read: Fields, rope: Fields) -> float:
    """A null is refused, not replaced: transformers has no number for it either."""
    if "rope_theta" in rope:
        return rope.get("rope_theta", float)
    return read.get("rope_theta", float) if "rope_theta" in read else 10000.0


def _scaling(read: Fields, rope: Fields, positions: int) -> RopeScaling | None:
    kind = rope.given("rope_type") if "rope_type" in rope else rope.values.get("type", "default")
    if rope.get("partial_rotary_factor", float, 1.0) != 1.0:
        raise rope.wrong("partial_rotary_factor", "1: heads rotate as a whole")
    if nested := [name for name, value in rope.values.items() if isinstance(value, dict)]:
        raise InputError(
            f"{rope.where}: {rope.prefix}{quote(nested[0])} is an object; all layers rotate alike"
        )
    if kind == "default":
        return None
    if kind != "llama3":
        raise InputError(
            f"{rope.where}: rope scaling {quote(kind)} is not supported; 'default' and 'llama3' are"
        )
    # As in transformers, the outer field comes first; the default is the model's own length.
    original = "original_max_position_embeddings"
    numbers = (
        rope.get("factor", float),
        rope.get("low_freq_factor", float),
        rope.get("high_freq_factor", float),
        read.get(original, int) if original in read else rope.get(original, int, positions),
    )
    try:
        return RopeScaling(*numbers)
    except InputError as error:
        raise InputError(f"{rope.where}: {error}") from None


# Settings that change even the tokens that transformers generates without drawing, and the value at
# which they do nothing.
_GREEDY: dict[str, float | list[int] | None] = {
    "bad_words_ids": None,
    "begin_suppress_tokens": [],
    "constraints": None,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "penalty_alpha": 0,
    "repetition_penalty": 1,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": [],
    "watermarking_config": None,
}


@dataclass(frozen=True, slots=True)
class Generation:
    """The generation settings of a folder."""

    stops: frozenset[int] = frozenset()
    """The tokens that end a text."""
    unsupported: Mapping[str, str] = field(default_factory=dict[str, str])
    """Unsupported settings that would change greedy tokens, as they are written."""
    file: str = "generation_config.json"
    """The name of the file they come from."""


def read_generation(folder: str | Path) -> Generation:
    """Read `generation_config.json` or, only if it is missing, `config.json`."""
    path = Path(folder) / "generation_config.json"
    if not path.exists():
        path = Path(folder) / "config.json"
    values = read_json(path)
    return Generation(
        _stops(path, values.get("eos_token_id")),
        {
            name: quote(values[name])
            for name, neutral in _GREEDY.items()
            if values.get(name) not in (None, neutral)
        },
        path.name,
    )


def _stops(path: Path, ids: object) -> frozenset[int]:
    found = cast("list[Any]", ids if isinstance(ids, list) else [] if ids is None else [ids])
    if not all(type(x) is int for x in found):
        raise InputError(f"{path}: eos_token_id is {quote(found)}, not token numbers")
    return frozenset(found)
