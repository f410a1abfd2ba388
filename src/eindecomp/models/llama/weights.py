"""The weights of a model: views of the safetensors files of a folder, or random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from eindecomp.engines.safetensors_file import StoredTensor, map_file, tensors_of
from eindecomp.errors import InputError, quote
from eindecomp.lang.dtypes import Array
from eindecomp.models.llama.config import DTYPES, Config
from eindecomp.models.llama.read_folder import check_folder, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
_TYPES = ("F32", "F16", "BF16")


class WeightFiles:
    """The tensors of a folder by name."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = check_folder(folder)
        self.tensors = _find(self.folder)
        self._maps: dict[Path, Array] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """A view of a tensor in its file; it must have the given shape."""
        stored = self.tensors.get(name)
        if stored is None:
            raise InputError(f"{self.folder}: tensor {name!r} is missing")
        if stored.shape != shape:
            raise InputError(
                f"{stored.file}: tensor {name!r} has shape {quote(list(stored.shape))}, but "
                f"config.json makes it {list(shape)}"
            )
        if stored.dtype not in _TYPES:
            raise InputError(
                f"{stored.file}: tensor {name!r} is of type {stored.dtype}; supported are "
                f"{', '.join(_TYPES)}"
            )
        if stored.file not in self._maps:
            self._maps[stored.file] = map_file(stored.file)
        return stored.view(self._maps[stored.file])


def _find(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of the single file, which transformers prefers, or else of the index."""
    if (folder / ADAPTER).exists():
        raise InputError(f"{folder / ADAPTER}: adapters are not supported: merge it into the model")
    if (folder / SINGLE).exists():
        return tensors_of(folder / SINGLE)[0]
    path = folder / INDEX
    if not path.exists():
        raise InputError(f"{folder} has neither {SINGLE} nor {INDEX}")
    places: Any = read_json(path).get("weight_map")
    if type(places) is not dict:
        raise InputError(f"{path}: weight_map is missing")
    files = list(cast("dict[str, Any]", places).values())
    for file in files:
        if not _is_plain(file):
            raise InputError(f"{path}: {quote(file)} is no file name of this folder")
    tensors: dict[str, StoredTensor] = {}
    for file in dict.fromkeys(files):
        tensors |= tensors_of(folder / file)[0]
    return tensors


def _is_plain(file: Any) -> bool:
    """Whether a name is that of a file in the same folder: an index must not point elsewhere."""
    return (
        isinstance(file, str)
        and file.endswith(".safetensors")
        and not any(mark in file for mark in ("/", "\\", "\0"))
        and len(file.encode()) < 256
    )


TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_UNUSED = "rotary_emb.inv_freq"  # in old files; transformers computes it instead


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight's name in the graph and in files, and its shape in files and in the graph."""

    name: str
    stored: str
    shape: tuple[int, ...]
    seen: tuple[int, ...]


def weights_of(config: Config) -> Iterator[Weight]:
    """All weights of a model."""
    a, f, d = config.width, config.hidden, config.head_size
    h, g = config.kv_heads, config.groups
    pair = (2, d // 2)  # halves rotate together, as in Hugging Face's files
    table = (config.vocabulary, a)
    yield Weight("E", TABLE, table, table)
    for layer in range(config.layers):
        parts = {
            "N": ("input_layernorm", (a,), (a,)),
            "WQ": ("self_attn.q_proj", (h * g * d, a), (h, g, *pair, a)),
            "WK": ("self_attn.k_proj", (h * d, a), (h, *pair, a)),
            "WV": ("self_attn.v_proj", (h * d, a), (h, d, a)),
            "WO": ("self_attn.o_proj", (a, h * g * d), (a, h, g, d)),
            "NF": ("post_attention_layernorm", (a,), (a,)),
            "WG": ("mlp.gate_proj", (f, a), (f, a)),
            "WU": ("mlp.up_proj", (f, a), (f, a)),
            "WD": ("mlp.down_proj", (a, f), (a, f)),
        }
        for name, (stored, shape, seen) in parts.items():
            yield Weight(f"{name}{layer}", f"model.layers.{layer}.{stored}.weight", shape, seen)
    yield Weight("N", "model.norm.weight", (a,), (a,))
    if not config.tied:
        yield Weight("H", HEAD, table, table)


def tied_as_stored(config: Config, files: WeightFiles) -> Config:
    """The configuration as stored: a separate head counts, whatever `config.json` says.

    transformers does the same with a folder that ties the head but stores another one.
    """
    is_apart = TABLE in files.tensors and HEAD in files.tensors
    return replace(config, tied=config.tied and not is_apart)


def load_weights(config: Config, files: WeightFiles) -> dict[str, Array]:
    """The weights in the model's type: views of the files, or converted copies in memory.

    Every tensor in the files must be one of them: any other, such as a bias, would change the
    numbers.
    """
    to = DTYPES[config.dtype]
    weights: dict[str, Array] = {}
    used = {HEAD} if config.tied else set[str]()
    for weight in weights_of(config):
        # If the table is not stored, the head that it is tied to is.
        swap = config.tied and weight.stored == TABLE and TABLE not in files.tensors
        name = HEAD if swap and HEAD in files.tensors else weight.stored
        array = files.array(name, weight.shape)
        weights[weight.name] = array.astype(to, copy=False).reshape(weight.seen)
        used.add(name)
    for name, stored in files.tensors.items():
        if name not in used and not name.endswith(_UNUSED):
            raise InputError(f"{stored.file}: config.json announces no tensor {quote(name, 100)}")
    return weights


def random_weights(config: Config, seed: int = 0) -> dict[str, Array]:
    """Random weights, scaled so that activations neither grow nor vanish."""
    rng = np.random.default_rng(seed)
    to = DTYPES[config.dtype]
    weights: dict[str, Array] = {}
    for weight in weights_of(config):
        if len(weight.shape) == 1:
            weights[weight.name] = np.ones(weight.seen, to)
            continue
        drawn = rng.standard_normal(weight.shape, np.float32) * np.float32(weight.shape[-1] ** -0.5)
        weights[weight.name] = drawn.astype(to, copy=False).reshape(weight.seen)
    return weights
