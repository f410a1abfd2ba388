"""Tokens: checking them, converting text to and from them, choosing the next by its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from eindecomp.errors import InputError, RunError, check_whole, extra, quote, shorten
from eindecomp.lang.dtypes import Array
from eindecomp.models.llama.config import Config

_NO_PROMPT = "prompts are token numbers, of one sequence or several"
_HOTTEST = 1e30  # more is as good as infinite


def token_rows(config: Config, ids: Any) -> list[list[int]]:
    """Sequences of tokens, none of them empty, that a model can read."""
    given = listed(ids)
    nested = bool(given) and isinstance(given[0], Sequence | np.ndarray)
    try:
        rows = [[index(token) for token in row] for row in (given if nested else [given])]
    except TypeError:
        raise InputError(_NO_PROMPT) from None
    for row in rows:
        if not row:
            raise InputError("a prompt needs at least one token")
        check_length(config, len(row))
        if wrong := [token for token in row if not 0 <= token < config.vocabulary]:
            raise InputError(f"token {wrong[0]} is outside the vocabulary of {config.vocabulary}")
    return rows


def listed(given: Any) -> list[Any]:
    """What was given as a prompt, as a list."""
    try:
        return list(given)
    except TypeError:
        raise InputError(_NO_PROMPT) from None


def check_length(config: Config, tokens: int) -> None:
    """Refuse more tokens than a model has positions."""
    if tokens > config.positions:
        raise InputError(f"{tokens} tokens are more than the model's {config.positions} positions")


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """A generated token, and the text that is certain once it is known.

    Attributes:
        token: Its number, such as `42`.
        text: What can be shown, such as `" the"`.
    """

    token: int
    text: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen: the likeliest at temperature 0, otherwise drawn at random.

    `top_k` and `top_p` together apply in that order, as in transformers.

    Args:
        temperature: How evenly tokens are drawn, such as `0.8`.
        top_k: Draws from the k likeliest and those as likely as the last of them, such as `50`.
        top_p: Draws from the fewest whose probabilities reach p, such as `0.9`.
        seed: That of the random numbers, such as `0`.

    Examples:
        >>> Sampling().sampler().choose(np.array([0.1, 2.0, 0.3]))
        1
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not _is_number(self.temperature) or not 0 <= self.temperature <= _HOTTEST:
            raise InputError(f"a temperature is 0 or more, not {quote(self.temperature)}")
        if self.top_k is not None:
            check_whole(top_k=self.top_k)
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise InputError(f"top_p is above 0 and at most 1, not {quote(self.top_p)}")
        check_whole(0, seed=self.seed)

    def sampler(self) -> Sampler:
        """A sampler with these settings."""
        return Sampler(self)


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


class Sampler:
    """Chooses tokens; the same seed and logits give the same ones."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._rng = np.random.default_rng(sampling.seed)

    def choose(self, logits: Array) -> int:
        """A token by its logits, [vocabulary]."""
        if np.isnan(logits).any():
            raise RunError("logits are NaN: the weights are damaged, or too large for their type")
        if not self.sampling.temperature:
            return int(logits.argmax())
        tokens, chances = probabilities(logits, self.sampling)
        return int(self._rng.choice(tokens, p=chances))


def probabilities(logits: Array, sampling: Sampling) -> tuple[Array, Array]:
    """The tokens that may be drawn, likeliest first, and their probabilities."""
    if not isfinite(logits.max()):
        raise RunError(f"the largest logit is {logits.max()}: there is nothing to draw by")
    wide = logits.astype(np.float64)
    with np.errstate(over="ignore"):  # by a temperature of almost zero
        scaled = ((wide - wide.max()) / float(sampling.temperature)).astype(np.float32)
    # Ascending and in float32, as transformers sorts and sums: borderline tokens are the same.
    tokens = np.argsort(scaled, kind="stable")
    if sampling.top_k is not None:
        least = scaled[tokens[-min(int(sampling.top_k), len(tokens))]]
        tokens = tokens[scaled[tokens] >= least]
    if sampling.top_p is not None:
        chances = np.exp(scaled[tokens])
        chances /= chances.sum(dtype=np.float32)
        below = np.cumsum(chances, dtype=np.float64).astype(np.float32)
        keep = below > np.float32(1 - float(sampling.top_p))
        keep[-1] = True
        tokens = tokens[keep]
    tokens = tokens[::-1]
    chances = np.exp(scaled[tokens].astype(np.float64))
    return tokens, chances / chances.sum()


NAME = "tokenizer.json"
_CONTEXT = 64  # the tokens before a new one on which its text may depend


class Tokenizer:
    """A folder's `tokenizer.json`."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / NAME
        tokenizers = extra("tokenizers")
        if not path.is_file():
            raise InputError(f"{path} is missing")
        try:
            self.whole: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises nothing more special
            raise InputError(f"{path} is no tokenizer: {shorten(str(error))}") from None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that mark its beginning."""
        return self.whole.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self.whole.decode(list(ids))


class TextStream:
    """Streams the text after a prompt; a character of several tokens comes with the last."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer.whole
        self._begin()
        for token in prompt[-_CONTEXT:]:
            self.add(token)

    def _begin(self) -> None:
        self._stream: Any = extra("tokenizers").decoders.DecodeStream(skip_special_tokens=True)

    def add(self, token: int) -> str:
        """The text that is certain with this token; it may be empty."""
        try:
            return self._stream.step(self._tokenizer, token) or ""
        except Exception:  # bytes that are no text change what those before them mean
            self._begin()
            return ""
