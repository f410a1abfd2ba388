"""Models of Hugging Face from their config.json, without weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import transformers

from eindecomp.errors import InputError
from eindecomp.frontends.torch.importing import from_torch

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.graph.graph import Graph


def from_folder(folder: Path, *, batch: int, tokens: int, dtype: str | None = None) -> Graph:
    """The graph of the model that a folder's config.json describes, for inputs of these sizes.

    The model's class is the one of transformers that the configuration names; nothing in the folder
    is run, and weights are neither made nor read.
    """
    model = _model(folder, dtype)
    takes = model.forward.__code__.co_varnames
    options = (
        {"use_cache": False} if "use_cache" in takes or hasattr(model.config, "use_cache") else {}
    )
    return from_torch(model, {**_inputs(model, batch, tokens), **options})


def _model(folder: Path, dtype: str | None) -> Any:
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(f"{folder} has no config.json")
    try:
        read = cast("Any", transformers.AutoConfig.from_pretrained)
        config = read(folder, trust_remote_code=False)
    except (ValueError, OSError, KeyError) as error:
        raise InputError(f"{file}: {str(error).splitlines()[0]}") from None
    names: list[str] = config.architectures or []
    kind = getattr(transformers, names[0], None) if names else None
    if kind is None:
        named = f"architecture {names[0]!r}, which transformers does not have" if names else "none"
        raise InputError(f"{file} names an architecture to import; it names {named}")
    of: object = config.dtype or torch.float32
    if dtype is not None:
        of = getattr(torch, dtype, None)
    if not isinstance(of, torch.dtype) or not of.is_floating_point:
        raise InputError(f"{dtype!r} is not a type of weights, such as float32 or bfloat16")
    with torch.device("meta"):
        model = kind._from_config(config, dtype=of)
    return model.eval()


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
