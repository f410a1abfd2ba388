"""What a Hugging Face folder says of generating: stop tokens, and settings that we do not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eindecomp.errors import InputError, quote
from eindecomp.models.llama.fields import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

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
