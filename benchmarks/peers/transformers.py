"""LLaMA in Hugging Face transformers with torch, with the arrays of a model of ours."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cores import cores
from eindecomp.models.llama.weights import weights_of
from peers import frameworks

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.experiments.measure import Way
    from eindecomp.models.llama import Config, Llama

    Array = np.ndarray[Any, Any]


@contextmanager
def prefill(model: Llama, ids: Array) -> Generator[Way]:
    """The logits after whole prompts; keys and values are kept, as ours are."""
    other = _same(model)
    torch = frameworks.torch()
    given = torch.from_numpy(ids)

    def read() -> object:
        with torch.no_grad():
            return other(given, use_cache=True, logits_to_keep=1).logits[:, -1].numpy()

    yield read


@contextmanager
def decode(model: Llama, ids: Array, tokens: Array) -> Generator[Way]:
    """The logits after one token more, every time; one has been read before."""
    other = _same(model)
    torch = frameworks.torch()
    kept = frameworks.transformers().DynamicCache(config=other.config)
    given = torch.from_numpy(tokens)[:, None]

    def step() -> object:
        with torch.no_grad():
            return other(given, past_key_values=kept, logits_to_keep=1).logits[:, -1].numpy()

    with torch.no_grad():
        other(torch.from_numpy(ids), past_key_values=kept, logits_to_keep=1)
    step()
    yield step


def _same(model: Llama) -> Any:
    """The same model, whose weights are the same arrays."""
    torch = frameworks.torch()
    torch.set_num_threads(cores())
    state = {
        weight.stored: torch.from_numpy(model.weights[weight.name].reshape(weight.shape))
        for weight in weights_of(model.config)
    }
    return build(model.config, state)


def build(config: Config, state: Mapping[str, Any]) -> Any:
    """A model that has the tensors of `state`, by their names in files, where they are."""
    library, torch = frameworks.transformers(), frameworks.torch()
    with torch.device("meta"):
        other = library.LlamaForCausalLM(
            library.LlamaConfig(
                vocab_size=config.vocabulary,
                hidden_size=config.width,
                intermediate_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                head_dim=config.head_size,
                max_position_embeddings=config.positions,
                rms_norm_eps=config.epsilon,
                rope_parameters=_rope(config),
                tie_word_embeddings=config.tied,
                attn_implementation="sdpa",
            )
        )
    other.load_state_dict(dict(state), assign=True, strict=False)
    other.tie_weights()
    device = next(iter(state.values())).device
    other.model.rotary_emb = type(other.model.rotary_emb)(other.config).to(device)
    return other.eval()


@contextmanager
def on_device(
    config: Config, state: Mapping[str, Any], ids: Any, *, compile_layers: bool = False
) -> Generator[Way]:
    """The logits after whole prompts, on the device that weights and prompts are on.

    All layers share what is compiled: transformers calls that regional compilation.
    """
    other = build(config, state)
    if compile_layers:
        for layer in other.model.layers:
            layer.forward = frameworks.compiled(layer.forward, ids.device.type)
    yield partial(read_prompts, other, ids)


def read_prompts(other: Any, ids: Any) -> Any:
    """The logits after whole prompts, of which nothing is kept."""
    with frameworks.torch().no_grad():
        return other(ids, use_cache=False, logits_to_keep=1).logits[:, -1]


@contextmanager
def steps_on_device(
    config: Config, state: Mapping[str, Any], ids: Any, room: int, warm: int
) -> Generator[Way]:
    """The logits after one token more each time, with a static cache and all of it compiled.

    The token is always 0; `warm` of them were read before.
    """
    torch = frameworks.torch()
    other = build(config, state)
    kept = frameworks.transformers().StaticCache(config=other.config, max_cache_len=room)
    with torch.no_grad():
        other(ids, past_key_values=kept, logits_to_keep=1)
    step = frameworks.compiled(
        other.forward, ids.device.type, mode="reduce-overhead", fullgraph=True
    )
    token = torch.zeros_like(ids[:, :1])
    places = torch.arange(ids.shape[1], room, device=ids.device)
    tells = "cache_position" in signature(other.forward).parameters  # newer ones count themselves
    done = 0

    def read() -> object:
        nonlocal done
        own = {"cache_position": places[done : done + 1]} if tells else {}
        done += 1
        with torch.no_grad():
            logits = step(token, past_key_values=kept, use_cache=True, **own).logits
        return logits[:, -1].clone()  # the next step writes to the same memory

    for _ in range(warm):
        read()
    yield read


def _rope(config: Config) -> dict[str, object]:
    scaling = config.scaling
    if scaling is None:
        return {"rope_type": "default", "rope_theta": config.theta}
    return {
        "rope_type": "llama3",
        "rope_theta": config.theta,
        "factor": scaling.factor,
        "low_freq_factor": scaling.low,
        "high_freq_factor": scaling.high,
        "original_max_position_embeddings": scaling.positions,
    }
