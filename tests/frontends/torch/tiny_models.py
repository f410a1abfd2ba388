"""Models of Hugging Face, small and with random weights, with example inputs."""

from __future__ import annotations

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    ViTConfig,
    ViTModel,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

SEEDED = torch.Generator().manual_seed(0)  # the same on every rank
IDS = torch.randint(0, 32, (2, 6), generator=SEEDED)


def llama(kv_heads, layers=2, **more):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=kv_heads, bos_token_id=1, eos_token_id=2,
            **more,
        )
    )  # fmt: skip


def qwen3(kv_heads):
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, head_dim=4,
            num_attention_heads=4, num_key_value_heads=kv_heads, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def whisper():
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in SIDE.items()}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    sizes = {"d_model": 16, "num_mel_bins": 8, "max_source_positions": 8}
    return WhisperForConditionalGeneration(
        WhisperConfig(vocab_size=32, max_target_positions=8, **sides, **ends, **sizes)
    )


SIDE = {"layers": 1, "attention_heads": 4, "ffn_dim": 24}
HEARD = {
    "input_features": torch.randn(2, 8, 16, generator=SEEDED),
    "decoder_input_ids": torch.randint(0, 32, (2, 8), generator=SEEDED),
    "use_cache": False,
}


def gpt2():
    sizes = {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, bos_token_id=1, eos_token_id=2, **sizes))


def bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertModel(BertConfig(vocab_size=32, intermediate_size=24, **sizes))


def vit():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return ViTModel(ViTConfig(intermediate_size=24, image_size=16, patch_size=4, **sizes))


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 5))


MODELS = {
    "llama": (lambda: llama(4), {"input_ids": IDS, "use_cache": False}),
    "grouped": (lambda: llama(2), {"input_ids": IDS, "use_cache": False}),
    "gpt2": (gpt2, {"input_ids": IDS, "use_cache": False}),
    "bert": (
        bert,
        {
            "input_ids": IDS,
            "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
        },
    ),
    "vit": (vit, {"pixel_values": torch.randn(2, 3, 16, 16, generator=SEEDED)}),
    "mlp": (mlp, {"input": torch.randn(8, 12, generator=SEEDED)}),
}


def made(name):
    torch.manual_seed(0)
    make, example = MODELS[name]
    return make().eval(), example
