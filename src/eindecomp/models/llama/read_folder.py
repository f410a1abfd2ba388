"""The JSON files of a Hugging Face folder, field by field, as they may hold anything.

`config.json` gives what transformers would make of it, or an error; `generation_config.json` stop
tokens, and settings that we do not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from eindecomp.errors import InputError, quote
from eindecomp.store.field import Field

_ORIGINAL = "original_max_position_embeddings"


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
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} is no JSON file: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no JSON object")
    return content  # pyright: ignore[reportUnknownVariableType]


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


# Every setting but the sizes by which transformers changes a LLaMA's numbers, with the values for
# which it computes what we do. Only `model_type` is required.
_ONLY: dict[str, tuple[object, ...]] = {
    "model_type": ("llama",), "hidden_act": ("silu", None), "is_causal": (True,),
    "num_kv_shared_layers": (None, 0), "partial_rotary_factor": (None, 1, 1.0),
    **dict.fromkeys(("attention_bias", "mlp_bias", "is_encoder_decoder"), (False, None)),
    **dict.fromkeys(("attribute_map", "per_layer_config"), (None, {})),
    **dict.fromkeys((
        "quantization_config", "fusion_config", "transformers_weights", "text_config", "decoder",
        "generator",
    ), (None,)),
}  # fmt: skip


def config_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Config` that a folder's `config.json` gives; null counts as absent."""
    _refuse_what_is_not_llama(values)
    given = {name: value for name, value in values.items() if value is not None}
    heads = Field(given)["num_attention_heads"].whole(1)
    width = Field(given)["hidden_size"].whole(1)
    if "head_dim" not in given and width % heads:
        raise InputError(f"hidden_size {width} is no multiple of {heads} heads")
    defaults: dict[str, Any] = {
        "num_key_value_heads": heads,
        "head_dim": width // heads,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {},
        "rope_parameters": {},
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    fields = Field(defaults | given)
    positions = fields["max_position_embeddings"].whole(1)
    rope = {"rope_theta": values.get("rope_theta", 10000.0), _ORIGINAL: positions}
    rope |= fields["rope_scaling"].object() or fields["rope_parameters"].object()
    if _ORIGINAL in values:
        rope[_ORIGINAL] = values[_ORIGINAL]  # as in transformers, the outer field comes first
    return {
        "vocabulary": fields["vocab_size"].whole(1),
        "width": width,
        "layers": fields["num_hidden_layers"].whole(1),
        "heads": heads,
        "kv_heads": fields["num_key_value_heads"].whole(1),
        "head_size": fields["head_dim"].whole(1),
        "hidden": fields["intermediate_size"].whole(1),
        "epsilon": float(fields["rms_norm_eps"].number()),
        "theta": float(Field(rope)["rope_theta"].number()),
        "scaling": _scaling(rope),
        "positions": positions,
        "tied": fields["tie_word_embeddings"].truth(),
        "dtype": fields["dtype" if given.get("dtype") else "torch_dtype"].text(),
    }


def _refuse_what_is_not_llama(values: Mapping[str, Any]) -> None:
    # Tokens attend to all tokens before them: `layer_types` decides that, and a window only if
    # there are no layer types.
    kinds: Any = values.get("layer_types")
    full = ["full_attention"] * len(kinds) if isinstance(kinds, list) and kinds else None  # pyright: ignore[reportUnknownArgumentType]
    windows: dict[str, tuple[object, ...]] = {
        "sliding_window": (None,),
        "attention_chunk_size": (None,),
    }
    known = windows if kinds is None else {"layer_types": (full,)}
    for name, supported in {**_ONLY, **known}.items():
        if name != "model_type" and name not in values:
            continue
        value = values.get(name)
        # Equality that distinguishes true from 1.
        if not any(value == one and type(value) is type(one) for one in supported):
            only = f"only {quote(supported[0])} is supported"
            raise InputError(f"{name} is {quote(value)}; {only}")


def _scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    if rope.get("partial_rotary_factor", 1.0) not in (1.0, None):
        raise InputError("partial_rotary_factor is not 1: heads rotate as a whole")
    if nested := [name for name, value in rope.items() if isinstance(value, dict)]:
        raise InputError(f"{quote(nested[0])} is an object; all layers rotate alike")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise InputError(f"rope scaling {quote(kind)} is not supported; 'default' and 'llama3' are")
    names = ("factor", "low_freq_factor", "high_freq_factor")
    numbers = [float(Field(rope)[name].number()) for name in names]
    return RopeScaling(*numbers, positions=Field(rope)[_ORIGINAL].whole(1))


# Settings that change what transformers generates even without sampling, and the value at which
# each has no effect.
_GREEDY: dict[str, float | list[int] | None] = {
    **dict.fromkeys((
        "bad_words_ids", "constraints", "dola_layers", "exponential_decay_length_penalty",
        "force_words_ids", "forced_bos_token_id", "forced_eos_token_id", "sequence_bias",
        "stop_strings", "watermarking_config",
    )),
    **dict.fromkeys((
        "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens", "no_repeat_ngram_size",
        "penalty_alpha",
    ), 0),
    **dict.fromkeys((
        "encoder_repetition_penalty", "guidance_scale", "num_beam_groups", "num_beams",
        "repetition_penalty",
    ), 1),
    "begin_suppress_tokens": [], "suppress_tokens": [],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generation:
    """The generation settings of a folder."""

    stops: frozenset[int] = frozenset()
    """The tokens that end a text."""
    unsupported: Mapping[str, str] = field(default_factory=dict[str, str])
    """Unsupported settings that would change greedy tokens, as they are written."""
    file: str = "generation_config.json"
    """The name of the file they come from."""

    def check_supported(self) -> None:
        """Refuse settings that change even the likeliest tokens."""
        for name, value in self.unsupported.items():
            raise InputError(
                f"{self.file} asks for {name} {value}, which is not supported; to do without, say "
                "how to choose tokens: sampling=Sampling(0), --temperature 0"
            )


def read_generation(folder: str | Path) -> Generation:
    """Read `generation_config.json` or, only if it is missing, `config.json`."""
    path = Path(folder) / "generation_config.json"
    if not path.exists():
        path = Path(folder) / "config.json"
    values = read_json(path)
    ids = values.get("eos_token_id")
    stops = cast("list[Any]", ids if isinstance(ids, list) else [] if ids is None else [ids])
    if not all(type(stop) is int for stop in stops):
        raise InputError(f"{path}: eos_token_id is {quote(stops)}, not token numbers")
    unsupported = {
        name: quote(values[name])
        for name, neutral in _GREEDY.items()
        if values.get(name) not in (None, neutral)
    }
    return Generation(frozenset(stops), unsupported, path.name)
