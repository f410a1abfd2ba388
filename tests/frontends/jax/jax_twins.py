"""Small models as plain functions of JAX, as one writes them without a library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def _random(shapes, seed=0):
    rng = np.random.default_rng(seed)
    leaves, tree = jax.tree.flatten(shapes, is_leaf=lambda s: isinstance(s, tuple))
    arrays = [jnp.asarray(rng.normal(size=s) / max(s[0], 1) ** 0.5, "float32") for s in leaves]
    return jax.tree.unflatten(tree, arrays)


# A multi-layer perceptron


def mlp(params, x):
    for layer in params["layers"]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params["head"]


def mlp_arguments(batch=8, width=16, layers=2):
    layer = {"w": (width, width), "b": (width,)}
    params = {"layers": [layer] * layers, "head": (width, 4)}
    return _random(params), _random((batch, width), 1)


def mlp_loss(params, x, target):
    return jnp.mean((mlp(params, x) - target) ** 2)


# LLaMA, with grouped queries


def rms_norm(x, weight):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


def rotary(x):
    size = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(size) / size)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def grouped_attention(q, k, v):
    b, s, heads, d = q.shape
    q = q.reshape(b, s, k.shape[2], heads // k.shape[2], d)
    scores = jnp.einsum("bskgd,btkd->bkgst", q, k) / d**0.5
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("bkgst,btkd->bskgd", weights, v).reshape(b, s, heads * d)


def llama_layer(p, x, heads=4, kv_heads=2):
    b, s, _ = x.shape
    normed = rms_norm(x, p["norm"])
    q = (normed @ p["wq"]).reshape(b, s, heads, -1)
    k = (normed @ p["wk"]).reshape(b, s, kv_heads, -1)
    v = (normed @ p["wv"]).reshape(b, s, kv_heads, -1)
    x = x + grouped_attention(rotary(q), rotary(k), v) @ p["wo"]
    normed = rms_norm(x, p["ffn_norm"])
    return x + (jax.nn.silu(normed @ p["w1"]) * (normed @ p["w3"])) @ p["w2"]


def layer_shapes(a=16, f=24, heads=4, kv_heads=2):
    kv = a // heads * kv_heads
    return {
        "norm": (a,), "wq": (a, a), "wk": (a, kv), "wv": (a, kv), "wo": (a, a),
        "ffn_norm": (a,), "w1": (a, f), "w3": (a, f), "w2": (f, a),
    }  # fmt: skip


def layer_arguments(seq=6, a=16, f=24):
    return _random(layer_shapes(a, f)), _random((2, seq, a), 1)


def llama(params, tokens):
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = llama_layer(layer, x)
    return rms_norm(x, params["norm"]) @ params["embed"].T


def llama_arguments(layers=2, vocab=32, a=16, seq=8):
    shapes = {"embed": (vocab, a), "layers": [layer_shapes(a)] * layers, "norm": (a,)}
    return _random(shapes), np.arange(2 * seq, dtype="int32").reshape(2, seq) * 5 % vocab


def scanned_llama(params, tokens):
    x = params["embed"][tokens]
    x, _ = jax.lax.scan(lambda x, p: (llama_layer(p, x), None), x, params["layers"])
    return rms_norm(x, params["norm"]) @ params["embed"].T


def scanned_llama_arguments(layers=2):
    params, tokens = llama_arguments(layers, vocab=16, seq=4)
    layers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params["layers"])
    return params | {"layers": layers}, tokens


# GPT-2 and BERT


def layer_norm(x, p):
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["g"] + p["b"]


def linear(x, p):
    return x @ p["w"] + p["b"]


def gpt_block(p, x, heads=4):
    b, s, a = x.shape
    q, k, v = jnp.split(linear(layer_norm(x, p["ln_1"]), p["attn"]), 3, axis=-1)
    q, k, v = (t.reshape(b, s, heads, a // heads) for t in (q, k, v))
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(mixed.reshape(b, s, a), p["proj"])
    return x + linear(jax.nn.gelu(linear(layer_norm(x, p["ln_2"]), p["fc"])), p["out"])


def gpt2(params, tokens):
    x = params["wte"][tokens] + params["wpe"][jnp.arange(tokens.shape[1])]
    for block in params["blocks"]:
        x = gpt_block(block, x)
    return {"logits": layer_norm(x, params["ln_f"]) @ params["wte"].T}


def _norm(a):
    return {"g": (a,), "b": (a,)}


def _linear(a, f):
    return {"w": (a, f), "b": (f,)}


def gpt2_arguments(a=16, vocab=32, seq=8, layers=2):
    block = {
        "ln_1": _norm(a), "attn": _linear(a, 3 * a), "proj": _linear(a, a),
        "ln_2": _norm(a), "fc": _linear(a, 4 * a), "out": _linear(4 * a, a),
    }  # fmt: skip
    shapes = {"wte": (vocab, a), "wpe": (seq, a), "blocks": [block] * layers, "ln_f": _norm(a)}
    return _random(shapes), np.arange(2 * seq, dtype="int32").reshape(2, seq) * 3 % vocab


def bert_block(p, x, mask, heads=4):
    b, s, a = x.shape
    q, k, v = (linear(x, p[n]).reshape(b, s, heads, -1).swapaxes(1, 2) for n in "qkv")
    scores = q @ k.swapaxes(-1, -2) / (a // heads) ** 0.5
    weights = jax.nn.softmax(scores + jnp.where(mask, 0.0, -1e9)[:, None, None])
    mixed = (weights @ v).swapaxes(1, 2).reshape(b, s, a)
    x = layer_norm(x + linear(mixed, p["proj"]), p["ln_1"])
    inner = jax.nn.gelu(linear(x, p["fc"]), approximate=False)
    return layer_norm(x + linear(inner, p["out"]), p["ln_2"])


def bert(params, tokens, mask):
    x = params["words"][tokens] + params["places"][: tokens.shape[1]]
    x = layer_norm(x, params["norm"])
    for block in params["blocks"]:
        x = bert_block(block, x, mask)
    return x, jnp.tanh(linear(x[:, 0], params["pooler"]))


def bert_arguments(a=16, vocab=32, seq=8, layers=2):
    block = {n: _linear(a, a) for n in ("q", "k", "v", "proj")}
    block |= {"ln_1": _norm(a), "ln_2": _norm(a), "fc": _linear(a, 32), "out": _linear(32, a)}
    shapes = {
        "words": (vocab, a), "places": (16, a), "norm": _norm(a),
        "blocks": [block] * layers, "pooler": _linear(a, a),
    }  # fmt: skip
    tokens = np.arange(2 * seq, dtype="int32").reshape(2, seq) * 7 % vocab
    return _random(shapes), tokens, np.arange(seq) < np.array([[seq], [5]])


# ViT


def vit(params, images):
    x = jax.lax.conv_general_dilated(
        images, params["patch"], (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    b, _, _, a = x.shape
    x = x.reshape(b, -1, a)
    first = jnp.broadcast_to(params["cls"], (b, 1, a))
    x = jnp.concatenate([first, x], axis=1) + params["places"]
    mask = np.ones((b, x.shape[1]), bool)
    for block in params["blocks"]:
        x = bert_block(block, x, mask)
    return linear(layer_norm(x[:, 0], params["norm"]), params["head"])


def vit_arguments(a=16, layers=2):
    block = bert_arguments(a, layers=1)[0]["blocks"][0]
    shapes = {
        "patch": (4, 4, 3, a), "cls": (1, 1, a), "places": (1, 10, a),
        "norm": _norm(a), "head": _linear(a, 6),
    }  # fmt: skip
    return _random(shapes) | {"blocks": [block] * layers}, _random((4, 12, 12, 3), 1)


TWINS = {
    "mlp": (mlp, mlp_arguments),
    "llama": (llama, llama_arguments),
    "scanned llama": (scanned_llama, scanned_llama_arguments),
    "gpt2": (gpt2, gpt2_arguments),
    "bert": (bert, bert_arguments),
    "vit": (vit, vit_arguments),
}
"""Every twin, and what makes arguments for it."""
