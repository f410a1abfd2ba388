"""LLaMA in Hugging Face transformers with torch, with the arrays of a model of ours."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eindecomp.experiments.peers import frameworks
from eindecomp.kernels.cores import cores
from eindecomp.models.llama.weights import weights_of

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
    library, torch = frameworks.transformers(), frameworks.torch()
    torch.set_num_threads(cores())
    config = model.config
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
            )
        )
    state = {
        weight.stored: torch.from_numpy(model.weights[weight.name].reshape(weight.shape))
        for weight in weights_of(config)
    }
    other.load_state_dict(state, assign=True, strict=False)
    other.tie_weights()
    other.model.rotary_emb = type(other.model.rotary_emb)(other.config)
    return other.eval()


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
