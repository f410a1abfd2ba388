"""Small random models of transformers, saved as Hugging Face folders."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 300
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def make_llama(folder: Path, shards: str = "1GB", **options: Any) -> LlamaForCausalLM:
    """A random model; its weights are large enough for logits to differ."""
    torch.manual_seed(0)
    dtype = options.pop("dtype", torch.float32)
    config = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = LlamaForCausalLM(LlamaConfig(**config | options)).to(dtype)
    model.save_pretrained(folder, max_shard_size=shards)
    return read_llama(folder, dtype)


def read_llama(folder: Path, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    """The model of a folder, by transformers; `to` would round its rotations, reading does not."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def peer_logits(model: LlamaForCausalLM, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What transformers computes, after every token."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it has no fast bfloat16 here
        return model(torch.from_numpy(ids)).logits.float().numpy()


def random_ids(batch: int, tokens: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(batch * tokens).integers(0, VOCABULARY, (batch, tokens))


def worst(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """The largest error relative to the largest value."""
    return float(np.abs(left.astype(np.float32) - right).max() / np.abs(right).max())


def make_tokenizer(folder: Path) -> None:
    """One token for each byte, so that most characters beyond ASCII take several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(alphabet)} | {"<s>": 256, "</s>": 257}
    words |= {f"<{number}>": number for number in range(258, VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(words, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 256)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
