"""`eindecomp llama`: go on from a prompt with a model from a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from eindecomp.cli.progress import interruptible
from eindecomp.cli.request import Json, strategy_from
from eindecomp.models.llama import DEFAULT_STRATEGY, Llama, Sampling
from eindecomp.planner.strategy import NAMED

if TYPE_CHECKING:
    from eindecomp.models.llama import Piece


def llama(
    folder: Annotated[
        Path, typer.Argument(help="a Hugging Face folder: config.json, safetensors, tokenizer.json")
    ],
    prompt: Annotated[str, typer.Option("--prompt", help="the text to go on from")],
    devices: Annotated[int, typer.Option("-p", "--devices", min=1, help="devices to use")] = 2,
    tokens: Annotated[int, typer.Option(min=1, help="how many tokens to add at most")] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the likeliest token")] = 0.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="draw from the k likeliest")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="draw from the fewest that are as likely as this together")
    ] = None,
    seed: Annotated[int, typer.Option(help="the same seed draws the same tokens")] = 0,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; as stored unless given")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(help=f"how work is cut: free, {', '.join(NAMED)}, or labels such as h,f"),
    ] = ",".join(DEFAULT_STRATEGY),
    interleaved: Annotated[
        bool, typer.Option("--interleaved", help="rotate neighbours, as in Meta's own files")
    ] = False,
    json: Json = False,
) -> None:
    """Generate text with a LLaMA, streamed as it comes."""
    sampling = Sampling(temperature, top_k, top_p, seed)
    chosen = None if strategy == "free" else strategy_from(strategy)
    model = Llama.load(folder, devices, dtype, chosen, interleaved=interleaved)
    pieces: list[Piece] = []
    with interruptible("the text is what was written so far"):
        for piece in model.generate(prompt, tokens, sampling):
            pieces.append(piece)
            if not json:
                typer.echo(piece.text, nl=False)
    if not json:
        typer.echo()
        return
    record = {
        "text": "".join(piece.text for piece in pieces),
        "tokens": [piece.token for piece in pieces],
        **asdict(model.counts),
    }
    typer.echo(orjson.dumps(record))
