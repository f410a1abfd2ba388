"""`Llama`: a model from a folder, planned over devices, that continues prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import numpy as np

from eindecomp.api.compile import plan_together
from eindecomp.engines.engine import Engine, stated_device_count
from eindecomp.engines.result import Result
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError, check_whole, quote
from eindecomp.lang.dtypes import Array
from eindecomp.models.llama.config import Config, rotations
from eindecomp.models.llama.graph import LATEST, prefill_graph, step_graph, store_graph
from eindecomp.models.llama.on_devices import Cache, PlacedWeights, padded
from eindecomp.models.llama.read_folder import Generation, read_generation
from eindecomp.models.llama.tokens import (
    NAME,
    GeneratedToken,
    Sampling,
    TextStream,
    Tokenizer,
    check_length,
    listed,
    token_rows,
)
from eindecomp.models.llama.weights import WeightFiles, load_weights, random_weights, tied_as_stored
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.strategy import GivenStrategy

DEFAULT_STRATEGY = ("o", "v", "h", "f")
"""Every product is cut along the rows of its weight, as those lie in memory.

Devices of one machine share memory, so moving less saves nothing, but most of a token's time goes
into reading weights: each device reads its own rows, in order.
"""


@dataclass(slots=True)
class Counts:
    """What a model has computed since it was loaded, and how long it took.

    Attributes:
        prompt_tokens: Tokens of prompts, such as `12`.
        step_tokens: Tokens read one by one, such as `127`: the first generated token follows from
            the prompt itself.
        planning_seconds: The time of planning, such as `0.8`.
        prefill_seconds: The time of reading prompts, such as `0.2`.
        step_seconds: The time of reading tokens one by one, such as `3.1`.
        bytes_moved: Between devices, such as `65536`.
        bytes_placed: To bring what one plan left to where another one wants it, such as `0`.
        plans: How many were made, such as `3`.
    """

    prompt_tokens: int = 0
    step_tokens: int = 0
    planning_seconds: float = 0.0
    prefill_seconds: float = 0.0
    step_seconds: float = 0.0
    bytes_moved: int = 0
    bytes_placed: int = 0
    plans: int = 0


class Llama:
    """A model's weights on an engine's devices, and a plan for each batch and length it has met.

    Weights are placed once, for all plans. `close`, or the end of a `with` block, frees them.

    Args:
        config: Its shape, such as `CONFIGS["7B"]`.
        weights: Arrays by input, such as `random_weights(config, 0)`.
        devices: How many to plan for, such as `2`; by default as many GPUs, JAX devices or ranks as
            the engine has, or 2 on cores.
        strategy: What plans are restricted to, as in `ed.plan`, such as `("o", "v", "h", "f")`;
            None plans for the fewest bytes.
        tokenizer: Turns texts into tokens, such as `Tokenizer(folder)`.
        generation: How texts end, such as `read_generation(folder)`.
        engine: A name, such as `"threads"`, or an engine.
        options: Those of the engine of that name, such as `{"workers": 2}`.

    Examples:
        >>> tiny = Config(
        ...     vocabulary=9, width=4, layers=1, heads=2, kv_heads=1, head_size=2, hidden=4
        ... )
        >>> with Llama.random(tiny, devices=1) as model:
        ...     len(list(model.generate([1, 2, 3], tokens=2)))
        2
    """

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, Array],
        devices: int | None = None,
        strategy: GivenStrategy | None = DEFAULT_STRATEGY,
        tokenizer: Tokenizer | None = None,
        generation: Generation | None = None,
        *,
        engine: str | Engine = "threads",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.config, self.weights, self.strategy = config, weights, strategy
        self.tokenizer, self.generation = tokenizer, generation or Generation()
        self.counts = Counts()
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._placed = PlacedWeights(weights, engine, options)
        if devices is None:
            devices = stated_device_count(self._placed.engine) or 2
        self.devices = devices

    def __repr__(self) -> str:
        return f"<Llama of {self.config.parameters:,} parameters for {self.devices} devices>"

    @staticmethod
    def load(
        folder: str | Path,
        devices: int | None = None,
        dtype: str | None = None,
        strategy: GivenStrategy | None = DEFAULT_STRATEGY,
        *,
        engine: str | Engine = "threads",
        options: Mapping[str, Any] | None = None,
    ) -> Llama:
        """Open a Hugging Face folder; weights stay in their files unless `dtype` differs.

        Args:
            folder: Where it is, such as `"Llama-3.2-1B"`.
            devices: As of the class, such as `2`.
            dtype: What to compute in, such as `"bfloat16"`; by default what the folder says.
            strategy: As of the class, such as `["b"]`.
            engine: A name, such as `"threads"`, or an engine.
            options: Those of the engine of that name, such as `{"workers": 2}`.
        """
        config = Config.from_folder(folder)
        if dtype is not None:
            config = replace(config, dtype=dtype)
        files = WeightFiles(folder)
        config = tied_as_stored(config, files)
        weights = load_weights(config, files)
        tokenizer = Tokenizer(folder) if (files.folder / NAME).exists() else None
        return Llama(
            config, weights, devices, strategy, tokenizer, read_generation(folder),
            engine=engine, options=options,
        )  # fmt: skip

    @staticmethod
    def random(
        config: Config,
        devices: int | None = None,
        strategy: GivenStrategy | None = DEFAULT_STRATEGY,
        seed: int = 0,
        *,
        engine: str | Engine = "threads",
        options: Mapping[str, Any] | None = None,
    ) -> Llama:
        """A model with random weights.

        Args:
            config: Its shape, such as `CONFIGS["7B"]`.
            devices: As of the class, such as `2`.
            strategy: As of the class, such as `["b"]`.
            seed: That of the random numbers, such as `0`.
            engine: A name, such as `"threads"`, or an engine.
            options: Those of the engine of that name, such as `{"workers": 2}`.
        """
        weights = random_weights(config, seed)
        return Llama(config, weights, devices, strategy, engine=engine, options=options)

    def close(self) -> None:
        """Free what the engine holds for this model; computing anything more is refused."""
        self._placed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self, kind: str, batch: int, tokens: int, room: int = 0) -> Plan:
        """The plan for a kind of work, made when it is first asked for.

        Args:
            kind: `"prefill"` or `"every"` of so many tokens, a `"step"` after them, or to `"store"`
                the latest keys and values behind those of them.
            batch: The number of sequences, such as `1`.
            tokens: How many, such as `64`.
            room: That of the cache to store in, such as `128`.
        """
        key = (kind, batch, tokens, room)
        if key not in self._plans:
            start = perf_counter()
            if kind == "step":
                graph = step_graph(self.config, batch, tokens)
            elif kind == "store":
                graph = store_graph(self.config, batch, tokens, room)
            elif kind in ("prefill", "every"):
                graph = prefill_graph(self.config, batch, tokens, every=kind == "every")
            else:
                raise InputError(f"a plan is for 'prefill', 'every' or 'step', not {kind!r}")
            strategy = ["h"] if kind == "store" else self.strategy
            self._plans[key] = plan_together(
                lambda: make_plan(graph, self.devices, strategy=strategy, keep_on_interrupt=False),
                self._placed.engine,
            )
            self.counts.planning_seconds += perf_counter() - start
            self.counts.plans += 1
        return self._plans[key]

    def cache(self, batch: int = 1, tokens: int = 0) -> Cache:
        """An empty cache, whose contents stay on the devices; it grows when it is full.

        Args:
            batch: The number of sequences, such as `1`.
            tokens: How many of each there is room for at first, such as `100`.
        """
        return Cache(self.config, batch, tokens)

    def prefill(
        self, ids: Sequence[int] | Sequence[Sequence[int]] | Array, cache: Cache | None = None
    ) -> Array:
        """Read a prompt, or several: the logits of what follows, [sequence, vocabulary].

        Args:
            ids: Tokens, such as `[1, 15, 7]`, or a list of such lists.
            cache: An empty one that receives the keys and values, such as `model.cache()`, for
                `step` to continue from.
        """
        rows = token_rows(self.config, ids)
        lengths = np.array([len(row) for row in rows], np.int32)
        if cache is not None:
            self._check_cache(cache)
            if cache.batch != len(rows) or cache.lengths.any():
                raise InputError(f"{len(rows)} prompts need an empty cache for as many sequences")
        table = np.zeros((len(rows), padded(int(lengths.max()))), np.int32)
        for row, tokens in zip(table, rows, strict=True):
            row[: len(tokens)] = tokens
            row[len(tokens) :] = tokens[-1]  # a token of the prompt: its values are read anyway
        result = self._run(self.plan("prefill", *table.shape), table, {"last": lengths - 1})
        if cache is not None:
            self._store(cache, cache.prompt(result), lengths, table.shape[1])
        self.counts.prompt_tokens += int(lengths.sum())
        self.counts.prefill_seconds += result.stats.seconds
        return result["logits"]

    def logits(self, ids: Sequence[int] | Sequence[Sequence[int]] | Array) -> Array:
        """The logits after every token, [sequence, token, vocabulary]; lengths must be equal.

        Args:
            ids: Tokens, such as `[1, 15, 7]`, or a list of such lists.
        """
        rows = token_rows(self.config, ids)
        if len({len(row) for row in rows}) > 1:
            raise InputError("logits after every token need sequences of one length")
        table = np.array(rows, np.int32)
        return self._run(self.plan("every", *table.shape), table, {})["logits"]

    def step(self, tokens: Sequence[int] | Array, cache: Cache) -> Array:
        """Read one more token of each sequence: the logits of what follows.

        Args:
            tokens: One of each, such as `[42]`.
            cache: What `prefill` and the steps before have left, from `model.cache()`.
        """
        ids = np.array(token_rows(self.config, [[token] for token in listed(tokens)]), np.int32)
        self._check_cache(cache)
        if len(ids) != cache.batch or not cache.lengths.all():
            raise InputError(f"{len(ids)} tokens go on from a cache of as many prompts, once read")
        check_length(self.config, int(cache.lengths.max()) + 1)
        if cache.is_full:
            self._store(cache, cache.stored, cache.lengths - LATEST, cache.room, LATEST)
        plan = self.plan("step", cache.batch, cache.room)
        if not cache.latest:
            cache.stored = self._placed.place(plan, cache.stored)
        more = {"length": cache.lengths - cache.latest, "latest": cache.latest}
        starts = cache.lengths[:, None]
        result = self._run(plan, ids, {**more, **cache.stored, **cache.tied}, starts)
        cache.step(plan, result)
        self.counts.step_tokens += cache.batch
        self.counts.step_seconds += result.stats.seconds
        return result["logits"][:, 0]

    def generate(
        self,
        prompt: str | Sequence[int],
        tokens: int = 128,
        sampling: Sampling | None = None,
        stops: Collection[int] | None = None,
    ) -> Iterator[GeneratedToken]:
        """Continue a prompt until a stop token, or for `tokens` tokens.

        Args:
            prompt: A text, such as `"Once upon"`, or its tokens.
            tokens: The most to generate, such as `128`.
            sampling: How tokens are chosen, such as `Sampling(temperature=0.8)`; by default the
                likeliest, unless the folder's generation_config.json (or config.json, if it has
                none) asks for more than that, such as a repetition penalty, which is refused.
            stops: Tokens that end a text, such as `{2}`; by default those of the folder.
        """
        check_whole(0, tokens=tokens)
        tokens = int(tokens)
        if sampling is None:
            self.generation.check_supported()
        elif not isinstance(sampling, Sampling):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"sampling is a Sampling, not {quote(sampling)}")
        rows = token_rows(self.config, self.encode(prompt))
        if len(rows) != 1:
            raise InputError(f"generating goes on from one prompt, not from {len(rows)}")
        [ids] = rows
        check_length(self.config, len(ids) + tokens - 1)
        try:
            stops = self.generation.stops if stops is None else frozenset(map(index, stops))
        except TypeError:
            raise InputError(f"stops are token numbers, not {quote(stops)}") from None
        sampler = (sampling or Sampling()).sampler()
        stream = None if self.tokenizer is None else TextStream(self.tokenizer, ids)

        def generated() -> Iterator[GeneratedToken]:
            if tokens < 1:
                return
            cache = self.cache(1, len(ids))
            logits = self.prefill(ids, cache)
            for number in range(tokens):
                token = sampler.choose(logits[0])
                ended = token in stops
                yield GeneratedToken(token, "" if stream is None or ended else stream.add(token))
                if ended or number == tokens - 1:
                    return
                logits = self.step([token], cache)

        return generated()

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a prompt.

        Args:
            prompt: A text, such as `"Once upon"`, or its tokens.
        """
        if not isinstance(prompt, str):
            return listed(prompt)
        if self.tokenizer is None:
            raise InputError(f"there is no {NAME}: give the prompt as token numbers")
        return self.tokenizer.encode(prompt)

    def _run(
        self, plan: Plan, ids: Array, more: Mapping[str, object], starts: Array | None = None
    ) -> Result:
        positions = np.arange(int(ids.shape[1])) + (0 if starts is None else starts)
        table = rotations(self.config, np.broadcast_to(positions, ids.shape))
        return self._counted(self._placed.run(plan, {"ids": ids, "R": table, **more}))

    def _store(
        self, cache: Cache, kept: Mapping[str, Tensor], lengths: Array, cached: int, latest: int = 0
    ) -> None:
        """Store the latest keys and values of a cache, or those of a prompt, with those before."""
        at = cache.places(lengths, cached, latest)
        plan = self.plan("store", cache.batch, cached, cache.room)
        result = self._counted(self._placed.run(plan, {"at": at, **kept, **cache.tied}))
        cache.store(result, lengths + latest)

    def _counted(self, result: Result) -> Result:
        self.counts.bytes_moved += result.stats.bytes_moved
        self.counts.bytes_placed += result.stats.bytes_placed
        return result

    def _check_cache(self, cache: Cache) -> None:
        if not isinstance(cache, Cache):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"a cache is what `Llama.cache` makes, not {quote(cache)}")
        if cache.config != self.config:
            raise InputError("the cache is of another model")
