"""LLaMA against transformers: logits, generated tokens, conventions, strategies, types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_llama import LLAMA3, make_llama, peer_logits, random_ids, read_llama, worst

import eindecomp as ed
from eindecomp.errors import InputError
from eindecomp.models.llama import CONFIGS, Config, Llama, prefill_graph, step_graph
from eindecomp.models.llama.weights import weights_of

KINDS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "one head of keys for each": {"num_key_value_heads": 4},
    "one head of keys for all, tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "llama3 scaling": {"rope_parameters": LLAMA3},
    "sharded": {"shards": "20KB"},
    "heads wider than the stream": {"head_dim": 16},
}


@pytest.mark.one_in(3)
@pytest.mark.long(
    "heads wider than the stream", "one head of keys for all, tied", "one head of keys for each"
)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_tokens_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    peer = make_llama(tmp_path, **KINDS[kind])
    model = Llama.load(tmp_path)
    for batch, tokens in ((1, 5), (2, 8), (2, 37)):
        ids = random_ids(batch, tokens)
        wanted = peer_logits(peer, ids)
        assert worst(model.prefill(ids), wanted[:, -1]) <= 1e-4
        if batch == 2 and tokens == 8:
            assert worst(model.logits(ids), wanted) <= 1e-4
    prompt = random_ids(1, 7)
    found = [piece.token for piece in model.generate(prompt[0].tolist(), 70)]
    with torch.no_grad():
        wanted = peer.generate(
            torch.from_numpy(prompt), max_new_tokens=70, do_sample=False, pad_token_id=0
        )
    assert found == wanted[0, 7:].tolist()


@pytest.mark.long
def test_bfloat16_is_as_near_the_truth_as_transformers(tmp_path: Path) -> None:
    peer = make_llama(tmp_path, dtype=torch.bfloat16)
    ids = random_ids(2, 8)
    model = Llama.load(tmp_path)
    assert model.config.dtype == "bfloat16"
    assert all(array.dtype.name == "bfloat16" for array in model.weights.values())
    wide = Llama.load(tmp_path, dtype="float32").prefill(ids)
    theirs = worst(peer_logits(peer, ids)[:, -1], wide)
    assert worst(peer_logits(read_llama(tmp_path), ids)[:, -1], wide) <= 1e-4
    assert worst(model.prefill(ids), wide) <= max(1.5 * theirs, 0.02)
    cache = model.cache(2)
    model.prefill(ids[:, :-1], cache)
    assert worst(model.step(ids[:, -1], cache), wide) <= max(1.5 * theirs, 0.03)


def test_half_precision_files_are_read_into_float32(tmp_path: Path) -> None:
    make_llama(tmp_path, dtype=torch.float16)
    ids = random_ids(1, 5)
    model = Llama.load(tmp_path)
    assert model.config.dtype == "float32"
    assert worst(model.prefill(ids), peer_logits(read_llama(tmp_path), ids)[:, -1]) <= 1e-4


def test_sequences_of_several_lengths_go_on_alike(tmp_path: Path) -> None:
    peer = make_llama(tmp_path)
    model = Llama.load(tmp_path)
    rows = [random_ids(1, 5)[0], random_ids(1, 8)[0]]
    cache = model.cache(2)
    found = model.prefill([row.tolist() for row in rows], cache)
    for _ in range(70):  # beyond the room that the cache begins with
        tokens = found.argmax(-1)
        rows = [np.append(row, token) for row, token in zip(rows, tokens, strict=True)]
        found = model.step(tokens, cache)
    assert cache.lengths.tolist() == [75, 78]
    assert cache.room == 128
    for row, logits in zip(rows, found, strict=True):
        assert worst(logits, peer_logits(peer, row[None])[0, -1]) <= 1e-4


@pytest.mark.one_in(5)
@pytest.mark.long("None")
@pytest.mark.parametrize("strategy", [None, "data", "sequence", "attention", "megatron", "sqrt"])
def test_strategies_are_priced_and_give_the_same_logits(
    strategy: str | None, tmp_path: Path
) -> None:
    make_llama(tmp_path)
    ids = random_ids(2, 8)
    usual, other = Llama.load(tmp_path), Llama.load(tmp_path, 4, strategy=strategy)
    assert worst(other.prefill(ids), usual.prefill(ids)) <= 1e-5
    made = other.plan("prefill", 2, 8)
    assert other.counts.bytes_moved == made.cost
    caches = usual.cache(2), other.cache(2)
    for model, cache in zip((usual, other), caches, strict=True):
        model.prefill(ids, cache)
    before = other.counts.bytes_moved
    found = [model.step([1, 2], cache) for model, cache in zip((usual, other), caches, strict=True)]
    assert worst(found[1], found[0]) <= 1e-5
    assert other.counts.bytes_moved - before == other.plan("step", 2, 64).cost


def test_strategies_cut_what_they_say() -> None:
    config = Config(vocabulary=64, width=32, layers=1, heads=8, kv_heads=4, head_size=8, hidden=64)
    graph = prefill_graph(config, 4, 16)
    cuts = {
        "data": ("T0", "b"), "sequence": ("T0", "s"), "attention": ("T0", "h"),
        "megatron": ("G0", "f"),
    }  # fmt: skip
    costs = {name: ed.plan(graph, 4, strategy=name).cost for name in cuts}
    for name, (vertex, label) in cuts.items():
        assert ed.plan(graph, 4, strategy=name).parts[vertex][label] == 4
    assert ed.plan(graph, 4).cost <= min(costs.values())


def test_weights_stay_in_their_files(tmp_path: Path) -> None:
    make_llama(tmp_path, shards="20KB")
    model = Llama.load(tmp_path)
    for array in model.weights.values():
        base: Any = array
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        assert not array.flags.owndata
        assert not array.flags.writeable
        assert type(base).__name__ == "mmap"


def test_published_configurations_have_their_number_of_parameters() -> None:
    billions = {name: config.parameters / 1e9 for name, config in CONFIGS.items()}
    wanted = {
        "7B": 6.74, "13B": 13.02, "30B": 32.53, "65B": 65.29, "2-7B": 6.74, "2-13B": 13.02,
        "2-70B": 68.98, "3-8B": 8.03, "3-70B": 70.55, "3.2-1B": 1.24,
    }  # fmt: skip
    assert billions == pytest.approx(wanted, abs=0.01)
    config = CONFIGS["2-70B"]
    sizes = {v.name: v.shape for v in step_graph(config, 1, 64).inputs}
    assert {w.name: w.seen for w in weights_of(config)}.items() <= sizes.items()


def test_configurations_are_checked_at_birth() -> None:
    shape = {"vocabulary": 8, "width": 8, "layers": 1, "heads": 4, "kv_heads": 2, "head_size": 2}
    for wrong, message in [
        ({"hidden": 0}, "hidden must be 1 or more"),
        ({"hidden": 4, "kv_heads": 3}, "4 heads cannot share 3 kv heads"),
        ({"hidden": 4, "head_size": 3}, "odd size 3"),
        ({"hidden": 4, "dtype": "int8"}, "float32 or bfloat16"),
        ({"hidden": 4, "epsilon": -1.0}, "epsilon is a positive number"),
    ]:
        with pytest.raises(InputError, match=message):
            Config(**shape | wrong)  # type: ignore[arg-type]


def test_old_files_name_rotations_differently(tmp_path: Path) -> None:
    make_llama(tmp_path, rope_parameters=LLAMA3)
    new = Config.from_folder(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    rope = fields.pop("rope_parameters")
    fields["rope_theta"] = rope.pop("rope_theta")
    fields["rope_scaling"] = rope
    path.write_text(json.dumps(fields))
    assert Config.from_folder(tmp_path) == new
    assert new.scaling is not None
    # Where both stand, transformers follows the old name.
    fields["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    path.write_text(json.dumps(fields))
    assert Config.from_folder(tmp_path) == new


def test_padding_is_not_seen(tmp_path: Path) -> None:
    make_llama(tmp_path)
    model = Llama.load(tmp_path, dtype="float32")
    table = np.array(model.weights["E"])
    table[0] = np.nan
    damaged = Llama(model.config, {**model.weights, "E": table}, 2)
    ids = [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(damaged.prefill(ids), model.prefill(ids))
