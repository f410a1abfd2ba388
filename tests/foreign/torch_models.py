"""Other people's models for PyTorch, tiny and with random weights, with example inputs.

Every entry makes a module and its example, by the class and the configuration that transformers
has under these names.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import transformers
from torch import nn

IDS = torch.arange(12).reshape(2, 6) * 7 % 29 + 3
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {**SIZES, "vocab_size": 32, "intermediate_size": 24, "pad_token_id": 0}
GROUPED = {**TEXT, "num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2}
ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
LATENT = {
    **GROUPED,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
SIDE = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "vocab_size": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@dataclass(frozen=True)
class Model:
    """How a module is made, what it is called with, and why it cannot be imported, if so."""

    make: object
    example: object
    refused: str = ""


def image(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def hugging_face(kind, config, options, example=None, refused=""):
    def make():
        return getattr(transformers, kind)(getattr(transformers, config)(**options))

    return Model(make, {"input_ids": IDS} if example is None else example, refused)


def causal(name, options, refused=""):
    return hugging_face(f"{name}ForCausalLM", f"{name}Config", options, refused=refused)


def encoder(name, options, example=None, refused=""):
    return hugging_face(f"{name}Model", f"{name}Config", options, example, refused)


class Recurrent(nn.Module):
    """A tagger: two layers of LSTM in both directions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.lstm = nn.LSTM(8, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0])


class Graphs(nn.Module):
    """A network over a graph: means of neighbours, attention over edges, a sum by graph."""

    def __init__(self):
        super().__init__()
        self.own, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.score = nn.Linear(16, 1)

    def forward(self, nodes, edges, graph):
        source, target = edges
        count = torch.zeros(len(nodes)).index_add(0, target, torch.ones(len(target)))
        sums = torch.zeros_like(nodes).index_add(0, target, self.other(nodes)[source])
        x = torch.relu(self.own(nodes) + sums / count.clamp(min=1)[:, None])
        scores = self.score(torch.cat([x[source], x[target]], -1))[:, 0]
        least = torch.full((len(nodes),), -torch.inf)
        most = least.scatter_reduce(0, target, scores, "amax", include_self=True)
        weights = (scores - most[target]).exp()
        total = torch.zeros(len(nodes)).index_add(0, target, weights)
        mixed = x[source] * (weights / total[target])[:, None]
        x = torch.zeros_like(x).index_add(0, target, mixed)
        return torch.zeros(2, 8).index_add(0, graph, x)


class Translator(nn.Module):
    """`nn.Transformer` with a mask that torch would look at."""

    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 24, batch_first=True)

    def forward(self, source, target, mask):
        return self.transformer(source, target, tgt_mask=mask)


EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 3], [1, 2, 0, 4, 5, 3, 2, 5]])
VISION = {**SIZES, "image_size": 16, "patch_size": 4, "intermediate_size": 24}
PIXELS = {"pixel_values": image(1, 3, 16, 16)}

MODELS = {
    "Llama": causal("Llama", GROUPED),
    "Qwen3": causal("Qwen3", {**GROUPED, "head_dim": 8}),
    "Phi-3": causal("Phi3", GROUPED),
    "Mistral": causal("Mistral", {**GROUPED, "sliding_window": 3}),
    "Gemma 2": causal("Gemma2", {**GROUPED, "head_dim": 8, "sliding_window": 3}),
    "Gemma 3": hugging_face(
        "Gemma3ForCausalLM", "Gemma3TextConfig", {**GROUPED, "head_dim": 8, "sliding_window": 3}
    ),
    "OLMo 2": causal("Olmo2", GROUPED),
    "Falcon": causal("Falcon", {**TEXT, "bos_token_id": 1, "eos_token_id": 2}),
    "NeoX": causal("GPTNeoX", {**TEXT, "bos_token_id": 1, "eos_token_id": 2}),
    "BLOOM": causal("Bloom", {"vocab_size": 32, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "Mixtral": causal("Mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen3-MoE": causal("Qwen3Moe", {**GROUPED, **ROUTED, "head_dim": 8}),
    "DeepSeek-V2": causal("DeepseekV2", LATENT),
    "DeepSeek-V3": causal("DeepseekV3", LATENT),
    "gpt-oss": causal(
        "GptOss", {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    "LLaMA 4": hugging_face(
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {
            **GROUPED,
            "head_dim": 8,
            "num_local_experts": 4,
            "intermediate_size_mlp": 24,
            "attention_chunk_size": 4,
            "num_hidden_layers": 4,
        },
    ),
    "T5": hugging_face(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": 32,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 24,
            "num_layers": 1,
            "num_heads": 2,
            "decoder_start_token_id": 0,
        },
        {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]},
    ),
    "BART": encoder("Bart", SIDE, {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]}),
    "Whisper": encoder(
        "Whisper",
        {**SIDE, "num_mel_bins": 4, "max_source_positions": 6, "max_target_positions": 8},
        {"input_features": image(1, 4, 12), "decoder_input_ids": IDS[:1, :4]},
    ),
    "ALBERT": encoder("Albert", {**TEXT, "embedding_size": 8}),
    "DeBERTa": encoder(
        "DebertaV2",
        {
            **TEXT,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "max_position_embeddings": 16,
        },
    ),
    "XLNet": encoder(
        "XLNet", {"vocab_size": 32, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24}
    ),
    "ModernBERT": encoder(
        "ModernBert",
        {
            **TEXT,
            "local_attention": 4,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "CLIP": encoder(
        "CLIP",
        {
            "text_config": {**TEXT, "bos_token_id": 1, "eos_token_id": 2},
            "vision_config": VISION,
            "projection_dim": 8,
        },
        {"input_ids": IDS, **PIXELS},
    ),
    "DINOv2": encoder("Dinov2", {**SIZES, "image_size": 16, "patch_size": 4}, PIXELS),
    "Swin": encoder(
        "Swin",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        PIXELS,
    ),
    "Swin 2": encoder(
        "Swinv2",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        PIXELS,
    ),
    "ConvNeXt": encoder(
        "ConvNext", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, PIXELS
    ),
    "ResNet-50": encoder(
        "ResNet",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 2],
            "layer_type": "bottleneck",
        },
        PIXELS,
    ),
    "MobileNetV2": encoder(
        "MobileNetV2",
        {"image_size": 32, "depth_multiplier": 0.1, "min_depth": 4, "depth_divisible_by": 4},
        {"pixel_values": image(1, 3, 32, 32)},
    ),
    "SegFormer": encoder(
        "Segformer",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
        },
        {"pixel_values": image(1, 3, 32, 32)},
    ),
    "DETR": encoder(
        "Detr",
        {
            **{k: v for k, v in SIDE.items() if not k.endswith("token_id") and k != "vocab_size"},
            "num_queries": 4,
            "backbone_config": transformers.ResNetConfig(
                embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
            ),
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
        },
        {"pixel_values": image(1, 3, 32, 32)},
    ),
    "Mamba": causal(
        "Mamba", {"vocab_size": 32, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
    ),
    "RWKV": causal(
        "Rwkv", {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "rescale_every": 0}
    ),
    "wav2vec2": encoder(
        "Wav2Vec2",
        {
            **TEXT,
            "conv_dim": [8, 8],
            "conv_stride": [2, 2],
            "conv_kernel": [4, 3],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
        },
        {"input_values": image(1, 64)},
    ),
    "LSTM": Model(Recurrent, (IDS,)),
    "GNN": Model(Graphs, (image(6, 8), EDGES, torch.tensor([0, 0, 0, 1, 1, 1]))),
    "nn.Transformer": Model(
        Translator,
        (image(2, 5, 16), image(2, 4, 16), nn.Transformer.generate_square_subsequent_mask(4)),
    ),
}


def made(name):
    """A module, its weights large enough for all of it to matter, and its example."""
    torch.manual_seed(0)
    model = MODELS[name]
    module = model.make().eval()
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.2)
    return module, model.example
