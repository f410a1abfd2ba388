"""Models of Hugging Face from their config.json, without weights."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import orjson
import torch

from eindecomp.errors import InputError
from eindecomp.frontends.torch.importing import from_torch
from eindecomp.graph.graph import Graph

transformers: Any = import_module("transformers")  # whose types take a sixth of all type checking


def from_folder(folder: Path, *, batch: int, tokens: int, dtype: str | None = None) -> Graph:
    """The graph of the model that a folder's config.json describes, for inputs of these sizes.

    The model's class is the one of transformers that the configuration names; nothing in the folder
    is run, and weights are neither made nor read.
    """
    model = _model(folder, dtype)
    return from_torch(model, _inputs(model, batch, tokens))


def _model(folder: Path, dtype: str | None) -> Any:
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"{folder} has no config.json")
    try:
        # Kernels of a hub, `owner/repository` in place of `sdpa`, would be fetched and run.
        implementations = _implementations(orjson.loads(file.read_bytes()))
        if named := next((each for each in implementations if "/" in each), None):
            why = "as an implementation, which would be fetched and run"
            raise InputError(f"it names {named!r} {why}")
        read = transformers.AutoConfig.from_pretrained
        config = read(folder, trust_remote_code=False, local_files_only=True)
        kind = _architecture(config)
        with torch.device("meta"):
            return kind._from_config(config, dtype=_weight_type(config, dtype)).eval()
    except Exception as error:  # transformers checks configurations in many ways
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
        raise InputError(f"{file}: {text or type(error).__name__}") from error


def _implementations(value: Any, key: str = "") -> Iterator[str]:
    """All values of a configuration under keys that name implementations."""
    match value:
        case str() if "implementation" in key:
            yield value
        case dict():
            for name, inner in cast("dict[str, Any]", value).items():
                yield from _implementations(inner, f"{key}.{name}")
        case list():
            for inner in cast("list[Any]", value):
                yield from _implementations(inner, key)
        case _:
            pass


def _architecture(config: Any) -> Any:
    """The class of transformers that a configuration is for."""
    names: Any = config.architectures or [None]
    kind = getattr(transformers, str(names[0]), None)
    if names[0] is None:
        raise InputError("it names no architecture")
    if not isinstance(kind, type) or not issubclass(kind, transformers.PreTrainedModel):
        raise InputError(f"transformers has no model {names[0]!r}, which is its architecture")
    if not isinstance(config, cast("Any", kind).config_class):
        raise InputError(f"its model_type is {config.model_type!r}, which {names[0]} is not")
    return kind


def _weight_type(config: Any, name: str | None) -> torch.dtype:
    dtype: object = config.dtype or torch.float32
    if name is not None:
        dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputError(f"{name!r} is not a type of weights, such as float32 or bfloat16")
    return dtype


def _inputs(model: Any, batch: int, tokens: int) -> dict[str, torch.Tensor]:
    """Example inputs: token ids or pixels, whichever is the model's main input."""
    name = model.main_input_name
    if name == "input_ids":
        most = getattr(model.config, "max_position_embeddings", tokens)
        if tokens > most:
            raise InputError(f"the model takes {most} tokens at most, not {tokens}")
        return {name: torch.zeros(batch, tokens, dtype=torch.int64, device="meta")}
    if name == "pixel_values":
        sides: Any = model.config.image_size
        area = (sides, sides) if isinstance(sides, int) else tuple(sides)
        shape = (batch, model.config.num_channels, *area)
        return {name: torch.zeros(shape, dtype=model.dtype, device="meta")}
    raise InputError(f"models that read {name!r} are imported in Python, with ed.from_torch")
