"""Folders are read as transformers reads them, or refused with the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_llama import LLAMA3, make_llama, peer_logits, random_ids, read_llama, worst
from transformers import GenerationConfig, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from eindecomp.errors import InputError
from eindecomp.models.llama import Config, Llama, Sampling
from eindecomp.models.llama.config import frequencies
from eindecomp.models.llama.read_folder import read_generation

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whole")
    make_llama(made)
    return made


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def edit(folder: Path, name: str = "config.json", **fields: Any) -> None:
    """Set fields of a JSON file; `...` removes one."""
    path = folder / name
    found = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({k: v for k, v in found.items() if v is not ...}))


def same_logits(folder: Path) -> bool:
    ids = random_ids(1, 5)
    wanted = peer_logits(read_llama(folder), ids)[:, -1]
    return worst(Llama.load(folder).prefill(ids), wanted) <= 1e-4


WITHOUT = {k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"}
ROTATIONS: dict[str, dict[str, Any]] = {
    "the length outside": {"rope_parameters": WITHOUT, "original_max_position_embeddings": 64},
    "two lengths": {"rope_parameters": LLAMA3, "original_max_position_embeddings": 64},
    "no length": {"rope_parameters": WITHOUT, "max_position_embeddings": 64},
    "the old name": {
        "rope_parameters": ..., "rope_scaling": WITHOUT, "original_max_position_embeddings": 32,
    },
    "theta outside": {"rope_parameters": {"rope_type": "default"}, "rope_theta": 500.0},
    "theta inside": {"rope_parameters": {"rope_theta": 400.0}, "rope_theta": 500.0},
    "theta alone": {"rope_parameters": ..., "rope_theta": 500.0},
    "two kinds": {"rope_parameters": LLAMA3 | {"type": "default"}},
    "nothing": {"rope_parameters": ...},
}  # fmt: skip


@pytest.mark.parametrize("case", ROTATIONS)
def test_rotations_are_those_of_transformers(case: str, folder: Path) -> None:
    edit(folder, **ROTATIONS[case])
    wanted = LlamaRotaryEmbedding(LlamaConfig.from_pretrained(folder)).inv_freq.numpy()
    np.testing.assert_allclose(frequencies(Config.from_folder(folder)), wanted, rtol=1e-5)


REFUSED: dict[str, Any] = {
    "is_causal": [False, None, 0],
    "sliding_window": [4],
    "attention_chunk_size": [4],
    "layer_types": [["sliding_attention", "full_attention"], "full_attention", []],
    "num_kv_shared_layers": [1],
    "per_layer_config": [{"0": {"rms_norm_eps": 1.0}}],
    "partial_rotary_factor": [0.5],
    "is_encoder_decoder": [True],
    "text_config": [{"hidden_size": 8}],
    "decoder": [{"hidden_size": 8}],
    "transformers_weights": ["other.safetensors"],
    "attribute_map": [{"rms_norm_eps": "initializer_range"}],
    "hidden_act": ["gelu"],
    "mlp_bias": [True, 1],
    "rope_theta": [None],
    "rope_parameters": [
        {"rope_theta": None}, {"rope_type": None}, {"rope_type": "linear", "factor": 2.0},
        {"full_attention": {"rope_type": "default", "rope_theta": 9.0}},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values]
)
def test_what_changes_the_numbers_is_refused(name: str, value: Any, folder: Path) -> None:
    if name == "rope_theta":
        edit(folder, rope_parameters=...)
    edit(folder, **{name: value})
    with pytest.raises(InputError, match=r"config\.json: "):
        Config.from_folder(folder)


def test_what_changes_nothing_is_read(folder: Path) -> None:
    known = Config.from_folder(folder)
    edit(
        folder, is_causal=True, sliding_window=4, layer_types=["full_attention"] * 2,
        num_kv_shared_layers=0, attention_dropout=0.5, use_cache=False, per_layer_config={},
    )  # fmt: skip
    assert Config.from_folder(folder) == known
    assert same_logits(folder)


@pytest.mark.parametrize("stored", ["another head", "the same head", "no table"])
def test_a_tied_head_is_what_is_stored(stored: str, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    if stored == "the same head":
        weights[HEAD] = weights[TABLE].clone()
    elif stored == "no table":
        del weights[TABLE]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    edit(folder, tie_word_embeddings=True)
    assert same_logits(folder)
    assert ("H" in Llama.load(folder).weights) == (stored != "no table")


def test_the_one_file_comes_before_the_index(folder: Path, tmp_path: Path) -> None:
    make_llama(tmp_path / "sharded", shards="20KB")
    for path in (tmp_path / "sharded").glob("model*"):
        shutil.copy(path, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= torch.linspace(0.5, 2, 32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert same_logits(folder)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.2.input_layernorm.weight", "x"]
)
def test_tensors_that_nothing_announces_are_refused(name: str, folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    save_file(weights | old, folder / "model.safetensors", {"format": "pt"})
    Llama.load(folder)
    save_file(weights | {name: torch.ones(32)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=f"announces no tensor '{name}'"):
        Llama.load(folder)


def test_shards_hold_only_what_is_announced(tmp_path: Path) -> None:
    make_llama(tmp_path, shards="20KB")
    shard = min(tmp_path.glob("model-*"))
    save_file(load_file(shard) | {"x": torch.ones(2)}, shard, {"format": "pt"})
    with pytest.raises(InputError, match="announces no tensor 'x'"):
        Llama.load(tmp_path)


def test_adapters_are_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match="adapters are not supported"):
        Llama.load(folder)


@pytest.mark.parametrize("generation", [None, {}, {"eos_token_id": 7}, {"eos_token_id": [7, 8]}])
@pytest.mark.parametrize("config", [..., None, 5, [5, 6]])
def test_stop_tokens_are_those_of_transformers(
    generation: dict[str, Any] | None, config: Any, folder: Path
) -> None:
    edit(folder, eos_token_id=config)
    (folder / "generation_config.json").unlink()
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    wanted = read_llama(folder).generation_config.eos_token_id
    listed = wanted if isinstance(wanted, list) else [] if wanted is None else [wanted]
    assert read_generation(folder).stops == set(listed)


def test_settings_that_change_greedy_tokens_are_refused_unless_one_chooses(folder: Path) -> None:
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"temperature": 0.6, "do_sample": True, "repetition_penalty": 1.0}))
    assert not read_generation(folder).unsupported
    defaults = {k: v for k, v in GenerationConfig().to_dict().items() if v is not None}
    path.write_text(json.dumps(defaults | {"repetition_penalty": 1.3, "num_beams": 4}))
    model = Llama.load(folder)
    assert set(model.generation.unsupported) == {"repetition_penalty", "num_beams"}
    with pytest.raises(InputError, match=r"asks for num_beams 4, which is not supported"):
        model.generate([1], 2)
    assert len(list(model.generate([1], 2, Sampling()))) == 2
    path.write_text(json.dumps({"suppress_tokens": [], "begin_suppress_tokens": []}))
    assert not read_generation(folder).unsupported
    path.unlink()
    edit(folder, repetition_penalty=1.3)
    with pytest.raises(InputError, match=r"^config\.json asks for repetition_penalty 1\.3"):
        Llama.load(folder).generate([1], 2)


def test_what_is_quoted_from_files_is_short(folder: Path) -> None:
    long = "x" * 10_000
    for fields in (
        {"model_type": long}, {"hidden_size": long}, {"rope_parameters": {"rope_type": long}},
        {"rope_parameters": {long: {}}}, {"layer_types": [long]}, {"sliding_window": long},
    ):  # fmt: skip
        broken = shutil.copytree(folder, folder.parent / "broken", dirs_exist_ok=True)
        edit(broken, **fields)
        with pytest.raises(InputError) as caught:
            Config.from_folder(broken)
        assert len(str(caught.value)) < 500
    edit(folder, "generation_config.json", eos_token_id=long)
    with pytest.raises(InputError) as caught:
        read_generation(folder)
    assert len(str(caught.value)) < 500
