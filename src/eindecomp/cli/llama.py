"""`eindecomp llama`: continue a prompt with a model from a folder."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from eindecomp.cli.engine import EngineName, EngineOptions, engine_from, is_first
from eindecomp.cli.progress import interruptible
from eindecomp.cli.request import Json
from eindecomp.cli.strategy import STRATEGY_HELP, strategy_from
from eindecomp.errors import EinDecompError, InputError, quote
from eindecomp.models.llama import DEFAULT_STRATEGY, Llama, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eindecomp.engines.engine import Engine
    from eindecomp.models.llama import GeneratedToken

_LINE = b"> "
"""What shared lines begin with, so that none is empty."""


def llama(
    folder: Annotated[
        Path, typer.Argument(help="a Hugging Face folder: config.json, safetensors, tokenizer.json")
    ],
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="the text to continue; by default lines of standard input"),
    ] = None,
    ids: Annotated[
        bool,
        typer.Option(
            "--ids", help="read and print token numbers; the default without tokenizer.json"
        ),
    ] = False,
    devices: Annotated[int, typer.Option("-p", "--devices", min=1, help="how many devices")] = 2,
    tokens: Annotated[int, typer.Option(min=1, help="generate at most this many tokens")] = 128,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="0, the default, chooses the likeliest token")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="draw from the k likeliest tokens")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="draw from the fewest tokens whose probabilities add up to this"),
    ] = None,
    seed: Annotated[int, typer.Option(help="the same seed draws the same tokens")] = 0,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; by default as stored")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(help=f"how work is split: free, {STRATEGY_HELP}"),
    ] = ",".join(DEFAULT_STRATEGY),
    interleaved: Annotated[
        bool, typer.Option("--interleaved", help="rotate neighbours, as in Meta's own files")
    ] = False,
    engine: EngineName = "threads",
    option: EngineOptions = None,
    json: Json = False,
) -> None:
    """Generate text with a LLaMA, printed as it is generated."""
    asked = (temperature, top_k, top_p) != (None, None, None)
    sampling = Sampling(temperature or 0.0, top_k, top_p, seed) if asked else None
    chosen = None if strategy == "free" else strategy_from(strategy)
    runner = engine_from(engine, option)
    model = Llama.load(folder, devices, dtype, chosen, interleaved=interleaved, engine=runner)
    as_numbers = ids or model.tokenizer is None
    with model, interruptible("the text ends here"):
        for line in [prompt] if prompt is not None else _shared(_lines(as_numbers), runner):
            try:
                given = _numbers(line) if as_numbers else line
                _answer(model, model.generate(given, tokens, sampling), as_numbers, json)
            except EinDecompError as error:
                if prompt is not None or not sys.stdin.isatty():
                    raise
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


def _shared(lines: Iterator[str], engine: Engine) -> Iterator[str]:
    """The lines that the first rank of a job reads, on all of them."""
    share: Callable[[bytes | None], bytes] | None = getattr(engine, "share_bytes", None)
    if share is None:
        yield from lines
    elif is_first(engine):
        for line in lines:
            share(_LINE + line.encode())
            yield line
        share(b"")
    else:
        while text := share(None):
            yield text.removeprefix(_LINE).decode()


def _numbers(text: str) -> list[int]:
    """Token numbers, separated by blanks or commas."""
    words = [word for word in re.split(r"[\s,]+", text) if word]
    for word in words:
        if not (word.isascii() and word.isdecimal() and len(word) < 10):
            raise InputError(
                f"the prompt must be token numbers, such as 1 306 4658, not {quote(word)}"
            )
    return [int(word) for word in words]


def _answer(
    model: Llama, generated: Iterator[GeneratedToken], as_numbers: bool, json: bool
) -> None:
    pieces: list[GeneratedToken] = []
    for piece in generated:
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
