"""Tokens are drawn by their probabilities, from those that transformers would draw from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from eindecomp.errors import InputError, RunError
from eindecomp.models.llama import Config, Llama, Sampling
from eindecomp.models.llama.tokens import probabilities

SMALL = Config(
    vocabulary=16, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, positions=256
)


def test_sampling_follows_the_probabilities() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    assert Sampling().sampler().choose(logits) == 1
    tokens, chances = probabilities(logits, Sampling(1.0))
    assert tokens.tolist() == [1, 3, 2, 0]
    assert chances == pytest.approx([0.4, 0.3, 0.2, 0.1])
    tokens, chances = probabilities(logits, Sampling(1.0, top_k=2))
    assert dict(zip(tokens.tolist(), chances, strict=True)) == pytest.approx({1: 4 / 7, 3: 3 / 7})
    tokens, _ = probabilities(logits, Sampling(1.0, top_p=0.65))
    assert tokens.tolist() == [1, 3]
    assert probabilities(logits, Sampling(0.5))[1][0] == pytest.approx(0.16 / 0.3)
    sampler = Sampling(1.0).sampler()
    counts = Counter(sampler.choose(logits) for _ in range(4000))
    assert [counts[k] / 4000 for k in range(4)] == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=0.03)
    assert probabilities(logits, Sampling(1e-310))[1].tolist() == [1, 0, 0, 0]
    for choosing in (Sampling(), Sampling(1.0)):
        with pytest.raises(RunError, match="logits are NaN"):
            choosing.sampler().choose(np.array([0.0, np.nan]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0}, {"temperature": "hot"}, {"temperature": float("nan")},
        {"temperature": True}, {"temperature": 10**400}, {"top_p": 10**400},
        {"top_k": 0}, {"top_k": 2.5}, {"top_k": "2"}, {"top_p": 0.0},
        {"top_p": "x"}, {"seed": -1}, {"seed": 0.5},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Sampling(**wrong)


def test_settings_may_be_numpys() -> None:
    sampling = Sampling(np.float32(0.5), np.int64(2), np.float64(0.9))  # type: ignore[arg-type]
    assert probabilities(np.array([0.0, 1.0, 2.0]), sampling)[0].tolist() == [2, 1]


def test_numbers_of_tokens_may_be_numpys() -> None:
    model = Llama.random(SMALL)
    for tokens in (np.int64(2), np.int8(120)):
        wanted = [piece.token for piece in model.generate([1], int(tokens))]
        assert [piece.token for piece in model.generate([1], tokens)] == wanted
    assert model.cache(1, np.int8(100)).room == 128
    with pytest.raises(InputError, match="tokens must be 0 or more"):
        model.cache(1, -1)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_nothing_is_drawn_by_infinite_logits(value: float) -> None:
    logits = np.full(3, value if value < 0 else 0.0)
    logits[1] = value
    with pytest.raises(RunError, match=r"largest logit is -?inf"):
        Sampling(1.0).sampler().choose(logits)
    assert Sampling().sampler().choose(logits) == (1 if value > 0 else 0)


# Few values make ties, and torch sorts up to 16 of them stably.
LOGITS = st.lists(st.integers(-6, 6).map(lambda n: n / 2), min_size=1, max_size=16)


@given(
    LOGITS, st.sampled_from([0.3, 0.7, 1.0, 1.5]), st.none() | st.integers(1, 20),
    st.none() | st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.75, 0.9, 0.95, 0.999]),
)  # fmt: skip
def test_ties_are_kept_as_transformers_keeps_them(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    ids: Any = None
    scores = TemperatureLogitsWarper(temperature)(ids, torch.tensor([logits]))
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(ids, scores)
    before = torch.softmax(torch.sort(scores).values, -1).cumsum(-1)
    if top_p is not None:
        scores = TopPLogitsWarper(top_p)(ids, scores)
    wanted = torch.softmax(scores, -1)[0].numpy()
    tokens, chances = probabilities(np.array(logits, "f4"), Sampling(temperature, top_k, top_p))
    if top_p is not None and (before - (1 - top_p)).abs().min() < 1e-6:
        return  # the sum is p but for its last bit, which exp rounds as it does
    assert sorted(tokens.tolist()) == np.flatnonzero(wanted).tolist()
    np.testing.assert_allclose(chances, wanted[tokens], rtol=1e-5)
