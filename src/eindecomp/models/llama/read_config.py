"""The `config.json` of a Hugging Face folder: what transformers would make of it, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError, quote
from eindecomp.models.llama.fields import Fields, check_folder, read_json
from eindecomp.models.llama.rope_scaling import RopeScaling

if TYPE_CHECKING:
    from pathlib import Path

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
    heads = read.integer("num_attention_heads")
    width = read.integer("hidden_size")
    if heads < 1 or (read.given("head_dim") is None and width % heads):
        raise InputError(f"{path}: hidden_size {width} is no multiple of {heads} heads")
    rope = read.inner("rope_scaling") or read.inner("rope_parameters")
    positions = read.integer("max_position_embeddings", 2048)
    return path, {
        "vocabulary": read.integer("vocab_size"),
        "width": width,
        "layers": read.integer("num_hidden_layers"),
        "heads": heads,
        "kv_heads": read.integer("num_key_value_heads", heads),
        "head_size": read.integer("head_dim", width // heads),
        "hidden": read.integer("intermediate_size"),
        "epsilon": read.number("rms_norm_eps", 1e-6),
        "theta": _theta(read, rope),
        "scaling": _scaling(read, rope, positions),
        "positions": positions,
        "tied": read.truth("tie_word_embeddings"),
        "dtype": read.text("dtype") or read.text("torch_dtype") or "float32",
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
        return rope.number("rope_theta")
    return read.number("rope_theta") if "rope_theta" in read else 10000.0


def _scaling(read: Fields, rope: Fields, positions: int) -> RopeScaling | None:
    kind = rope.given("rope_type") if "rope_type" in rope else rope.values.get("type", "default")
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
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
        rope.number("factor"),
        rope.number("low_freq_factor"),
        rope.number("high_freq_factor"),
        read.integer(original) if original in read else rope.integer(original, positions),
    )
    try:
        return RopeScaling(*numbers)
    except InputError as error:
        raise InputError(f"{rope.where}: {error}") from None
