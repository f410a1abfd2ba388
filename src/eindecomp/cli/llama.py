"""`eindecomp llama`: continue a prompt with a model from a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from eindecomp.cli.options import (
    STRATEGY_HELP,
    EngineName,
    EngineOptions,
    Json,
    argument,
    engine_from,
    flag,
    number_from,
    option,
    strategy_from,
    strategy_names,
)
from eindecomp.cli.request import options_from_fields
from eindecomp.cli.terminal import status_line
from eindecomp.engines.engine import Ranks, ranks_of
from eindecomp.errors import EinDecompError, InputError, quote
from eindecomp.models.llama import GeneratedToken, Llama, Sampling

DEFAULT = "o,v,h,f"
"""The strategy of `Llama.load`."""
_LINE = b"> "
"""What shared lines begin with, so that none is empty."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen."""

    temperature: Annotated[
        float | None, typer.Option(min=0, help="0, the default, chooses the likeliest token")
    ] = None
    top_k: Annotated[int | None, typer.Option(min=1, help="draw from the k likeliest")] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="draw from the fewest tokens whose probabilities add up to this"),
    ] = None
    seed: Annotated[int, option("N", "seed of the draws: the same draws the same tokens")] = 0

    def sampling(self) -> Sampling | None:
        """What the model is given: None where nothing is asked."""
        if (self.temperature, self.top_k, self.top_p) == (None, None, None):
            return None
        return Sampling(self.temperature or 0.0, self.top_k, self.top_p, self.seed)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """How the model is split over devices, and what it computes in."""

    devices: Annotated[
        int | None,
        option(
            "N",
            "how many devices; by default 2, or the GPUs, devices or ranks of the engine",
            "-p",
            "--devices",
            min=1,
        ),
    ] = None
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16; else as stored")] = None
    strategy: Annotated[
        str,
        option(
            "NAME",
            f"how work is split, by default {DEFAULT}: free, {STRATEGY_HELP}",
            autocompletion=strategy_names,
        ),
    ] = DEFAULT


@options_from_fields
def llama(
    folder: Annotated[
        Path, argument("DIR", "a Hugging Face folder: config.json, safetensors, tokenizer.json")
    ],
    asked: ModelOptions,
    drawn: SamplingOptions,
    prompt: Annotated[
        str | None, option("TEXT", "the text to continue; by default lines of standard input")
    ] = None,
    ids: Annotated[
        bool, flag("--ids", "read and print token numbers; the default without tokenizer.json")
    ] = False,
    max_tokens: Annotated[int, option("N", "generate at most this many tokens", min=1)] = 128,
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Generate text with a LLaMA, printed as it is generated.

    Without --prompt it continues each line of standard input. --json prints one object for each
    prompt, on a line of its own.

    Examples:
        eindecomp llama DIR --prompt "Once upon a time" -p 2 --max-tokens 100
        eindecomp llama DIR --prompt "Once" --temperature 0.8 --top-k 50 --seed 1
        eindecomp llama DIR < prompts.txt
    """
    sampling = drawn.sampling()
    given: dict[str, Any] = asdict(asked) | {"strategy": strategy_from(asked.strategy)}
    runner = engine_from(engine, option)
    with status_line(f"loading {folder}"):
        model = Llama.load(folder, **given, engine=runner)
    as_numbers, ranks = ids or model.tokenizer is None, ranks_of(runner)
    with model:
        # The first rank of a job reads for all: whether it has a terminal.
        typed = ranks.share_bytes(None if ranks.rank else b"%d" % sys.stdin.isatty()) == b"1"
        for line in [prompt] if prompt is not None else _shared(_lines(as_numbers), ranks):
            try:
                tokens = _numbers(line) if as_numbers else line
                _answer(model, model.generate(tokens, max_tokens, sampling), as_numbers, json)
            except EinDecompError as error:
                if prompt is not None or not typed:
                    raise
                if ranks.rank == 0:
                    typer.echo(f"eindecomp: {error}", err=True)


def _lines(as_numbers: bool) -> Iterator[str]:
    """The lines of standard input that are not blank, with a prompt on a terminal."""
    while True:
        if sys.stdin.isatty():
            typer.echo("token numbers> " if as_numbers else "prompt> ", err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\r\n")


def _shared(lines: Iterator[str], ranks: Ranks) -> Iterator[str]:
    """The lines that the first rank of a job reads, on all of them."""

    def first() -> bytes:
        with ranks.not_stuck():  # until the others have it, too
            line = next(lines, None)
            return ranks.share_bytes(b"" if line is None else _LINE + line.encode())

    while text := ranks.share_bytes(None) if ranks.rank else first():
        yield text.removeprefix(_LINE).decode()


def _numbers(text: str) -> list[int]:
    """Token numbers, separated by blanks or commas."""
    numbers: list[int] = []
    for word in text.replace(",", " ").split():
        number = number_from(word)
        if number is None:
            example = "such as 1 306 4658"
            raise InputError(f"the prompt must be token numbers, {example}, not {quote(word)}")
        numbers.append(number)
    return numbers


def _answer(model: Llama, made: Iterator[GeneratedToken], as_numbers: bool, json: bool) -> None:
    pieces: list[GeneratedToken] = []
    for piece in made:
        blank = " " if as_numbers and pieces else ""
        pieces.append(piece)
        if not json:
            typer.echo(blank + (str(piece.token) if as_numbers else piece.text), nl=False)
    if not json:
        typer.echo()
        return
    record = {
        "text": "".join(piece.text for piece in pieces),
        "tokens": [piece.token for piece in pieces],
        **asdict(model.counts),
    }
    typer.echo(orjson.dumps(record))
