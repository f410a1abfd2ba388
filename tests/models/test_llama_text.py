"""Text in and out, sampling, the command, and folders that are broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
from safetensors.torch import load_file, save_file
from small_llama import make_llama, make_tokenizer
from tokenizers import decoders
from typer.testing import CliRunner

from eindecomp.cli.root import app
from eindecomp.errors import InputError
from eindecomp.models.llama import Llama, Sampling
from eindecomp.models.llama.on_devices import Cache
from eindecomp.models.llama.tokens import TextStream, Tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_llama(tmp_path)
    make_tokenizer(tmp_path)
    return tmp_path


def test_streamed_text_is_whole_text(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    text = "naïve — 数学 🙂 café"
    ids = tokenizer.encode(text)[1:]
    assert len(ids) > len(text)
    stream = TextStream(tokenizer, [256])
    pieces = [stream.add(token) for token in ids]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    broken = TextStream(tokenizer, [256])
    assert [broken.add(token) for token in tokenizer.encode("é")[1:2]] == [""]


def test_a_prompt_may_end_within_a_character(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    start, *rest = tokenizer.encode("é, then more")[1:]
    stream = TextStream(tokenizer, [256, start])
    pieces = [stream.add(token) for token in rest]
    assert pieces[0] == "é"
    assert "".join(pieces) == "é, then more"


def test_bytes_that_are_no_text_do_not_end_a_stream(tmp_path: Path) -> None:
    words = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"a": 256}
    whole = tokenizers.Tokenizer(tokenizers.models.BPE(words, [], byte_fallback=True))
    whole.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    whole.save(str(tmp_path / "tokenizer.json"))
    stream = TextStream(Tokenizer(tmp_path), [256])
    pieces = [stream.add(token) for token in [*"é".encode(), 0x80, 256, 256, *"é".encode()]]
    assert pieces == ["", "é", "", "", "a", "", "é"]


def test_generation_streams_and_stops(folder: Path) -> None:
    model = Llama.load(folder)
    pieces = list(model.generate("hello", 12))
    assert model.tokenizer is not None
    tokens = [piece.token for piece in pieces]
    assert len(tokens) == 12
    whole = model.tokenizer.decode(tokens)
    assert "".join(piece.text for piece in pieces) == whole.rstrip("\ufffd")
    stop = tokens[3]
    stopped = [piece.token for piece in model.generate("hello", 12, stops=frozenset({stop}))]
    assert stopped == tokens[: tokens.index(stop) + 1]
    assert model.counts.step_tokens == 11 + len(stopped) - 1
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [stop, 5]}))
    assert Llama.load(folder).generation.stops == {stop, 5}


@pytest.mark.long
def test_seeds_decide_what_is_drawn(folder: Path) -> None:
    model = Llama.load(folder)

    def drawn(seed: int) -> list[int]:
        sampling = Sampling(temperature=2.0, top_k=50, top_p=0.9, seed=seed)
        return [piece.token for piece in model.generate("a", 8, sampling)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_prompts_are_checked(folder: Path) -> None:
    model = Llama.load(folder)
    cache = model.cache(1)
    other = Cache(replace(model.config, layers=1), 1, 8)
    for call, message in [
        (lambda: model.prefill([]), "at least one token"),
        (lambda: model.prefill([300]), "token 300 is outside the vocabulary of 300"),
        (lambda: model.prefill([1] * 257), "257 tokens are more than the model's 256"),
        (lambda: model.generate([1], 1000), "more than the model's 256 positions"),
        (lambda: model.generate([-1]), "token -1 is outside the vocabulary"),
        (lambda: model.generate([10**12]), "token 1000000000000 is outside the vocabulary"),
        (lambda: model.prefill("hello"), "prompts are token numbers"),
        (lambda: model.prefill(5), "prompts are token numbers"),  # type: ignore[arg-type]
        (lambda: model.step(5, cache), "prompts are token numbers"),  # type: ignore[arg-type]
        (lambda: model.generate([1], 1.5), "tokens must be 0 or more, not 1.5"),  # type: ignore[arg-type]
        (lambda: model.generate([1], -1), "tokens must be 0 or more, not -1"),
        (lambda: model.generate([[1, 2], [3]], 3), "goes on from one prompt, not from 2"),  # type: ignore[list-item]
        (lambda: model.plan("prefil", 1, 8), "a plan is for 'prefill', 'every' or 'step'"),
        (lambda: model.prefill([[1, 2], 3]), "prompts are token numbers"),  # type: ignore[list-item]
        (lambda: model.prefill([1.5, 2.5]), "prompts are token numbers"),  # type: ignore[list-item]
        (lambda: model.generate([1], stops=26), "stops are token numbers, not 26"),  # type: ignore[arg-type]
        (lambda: model.generate([1], stops=["x"]), "stops are token numbers"),  # type: ignore[list-item]
        (lambda: model.generate([1], sampling={"top_k": 2}), "sampling is a Sampling"),  # type: ignore[arg-type]
        (lambda: model.step([1], None), "a cache is what `Llama.cache` makes"),  # type: ignore[arg-type]
        (lambda: model.prefill([1], {}), "a cache is what `Llama.cache` makes"),  # type: ignore[arg-type]
        (lambda: Llama.load(None), "named by its path, not None"),  # type: ignore[arg-type]
        (lambda: model.cache(-1), "batch must be 1 or more"),
        (lambda: model.prefill([1], other), "the cache is of another model"),
        (lambda: model.step([1], cache), "once read"),
        (lambda: model.prefill([[1], [2]], cache), "need an empty cache for as many"),
    ]:
        with pytest.raises(InputError, match=message):
            call()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"no tokenizer\.json: give the prompt as token numbers"):
        Llama.load(folder).generate("hello")


def test_the_command_streams_text_or_prints_a_record(folder: Path) -> None:
    asked = ["llama", str(folder), "--prompt", "hello", "-p", "2", "--max-tokens", "6"]
    plain = CliRunner().invoke(app, asked)
    assert plain.exit_code == 0, plain.output
    record = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert plain.stdout == record["text"] + "\n"
    assert len(record["tokens"]) == 6
    assert record["step_tokens"] == 5
    named = CliRunner().invoke(app, [*asked, "--strategy", "megatron", "--dtype", "bfloat16"])
    assert named.exit_code == 0
    lines = CliRunner().invoke(app, [*asked[:2], *asked[4:]], input="hello\n\nhello\n")
    assert lines.stdout == plain.stdout * 2
    wrong = CliRunner().invoke(app, ["llama", str(folder / "none"), "--prompt", "x"])
    assert wrong.exit_code == 1
    assert "is no folder" in wrong.stderr


def test_the_command_takes_and_prints_token_numbers(folder: Path) -> None:
    wanted = [piece.token for piece in Llama.load(folder).generate([1, 20, 30], 4)]
    asked = ["llama", str(folder), "--max-tokens", "4"]
    shown = " ".join(map(str, wanted)) + "\n"
    given = CliRunner().invoke(app, [*asked, "--ids", "--prompt", "1, 20 30"])
    assert given.stdout == shown
    (folder / "tokenizer.json").unlink()
    without = CliRunner().invoke(app, [*asked, "--prompt", "1 20 30"])
    assert without.stdout == shown
    record = CliRunner().invoke(app, [*asked, "--prompt", "1 20 30", "--json"]).stdout
    assert json.loads(record)["tokens"] == wanted
    lines = CliRunner().invoke(app, asked, input="1 20 30\n1,20,30\n")
    assert lines.stdout == shown * 2
    for prompt, message in (("hello", "not 'hello'"), ("-1", "not '-1'"), (" ", "at least one")):
        wrong = CliRunner().invoke(app, [*asked, "--prompt", prompt])
        assert wrong.exit_code == 1
        assert message in wrong.stderr


def _edit(name: str, **fields: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        found = json.loads(path.read_text())
        for key, value in fields.items():
            if value is None:
                del found[key]
            else:
                found[key] = value
        path.write_text(json.dumps(found))

    return edit


def _tensors(change: Callable[[dict[str, object]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return edit


def _truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _misplace(file: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "whole.safetensors")
        index = {"weight_map": {"model.norm.weight": file}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return edit


def _put_folder(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return edit


def _unmapped(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")


NORM = "model.norm.weight"
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json cannot be read"),
    "no JSON": (lambda f: (f / "config.json").write_text("{") and None, "no JSON file"),
    "a list": (lambda f: (f / "config.json").write_text("[]") and None, "no JSON object"),
    "no size": (_edit("config.json", hidden_size=None), "hidden_size: is missing"),
    "no number": (_edit("config.json", hidden_size="32"), "hidden_size: must be a whole number"),
    "negative": (_edit("config.json", num_hidden_layers=-1), "num_hidden_layers: must be"),
    "uneven": (_edit("config.json", num_key_value_heads=3), "cannot share 3 kv heads"),
    "another model": (_edit("config.json", model_type="gpt2"), "only 'llama' is supported"),
    "biases": (_edit("config.json", attention_bias=True), "attention_bias is True"),
    "another scaling": (
        _edit("config.json", rope_parameters={"rope_type": "yarn"}),
        "rope scaling 'yarn' is not supported",
    ),
    "half a scaling": (
        _edit("config.json", rope_parameters={"rope_type": "llama3", "rope_theta": 1e4}),
        "config.json: factor: is missing",
    ),
    "stop tokens": (
        _edit("generation_config.json", eos_token_id=["x"]),
        "eos_token_id is .'x'., not token numbers",
    ),
    "a folder": (_put_folder("config.json"), "config.json cannot be read"),
    "a type in a list": (_edit("config.json", dtype=["x"]), "dtype: must be a text, not .'x'."),
    "an enormous number": (_edit("config.json", rms_norm_eps=10**400), "no JSON file: number is"),
    "quantised": (_edit("config.json", quantization_config={"bits": 4}), "only None is supported"),
    "another width": (_edit("config.json", intermediate_size=64), "has shape .48, 32., but"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "neither model.safetensors nor"),
    "truncated": (_truncate, "model.safetensors is no whole safetensors file"),
    "not one": (lambda f: (f / "model.safetensors").write_bytes(b"x") and None, "no whole"),
    "no tensor": (_tensors(lambda w: w.__delitem__(NORM)), f"tensor '{NORM}' is missing"),
    "another type": (
        _tensors(lambda w: w.update({NORM: w[NORM].long()})),  # type: ignore[attr-defined]
        f"tensor '{NORM}' is of type I64",
    ),
    "no shard": (_misplace("a.safetensors"), "a.safetensors is missing"),
    "a shard elsewhere": (_misplace("../a.safetensors"), "no file name"),
    "a shard at the root": (_misplace("/etc/a.safetensors"), "no file name"),
    "a long name": (_misplace("a" * 5000 + ".safetensors"), "no file name"),
    "a number for a shard": (_misplace(3), "no file name"),
    "no map": (_unmapped, "weight_map is missing"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}") and None, "is no tokenizer"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whole")
    make_llama(made)
    make_tokenizer(made)
    return made


@pytest.mark.parametrize("what", BROKEN)
def test_broken_folders_are_named(what: str, whole: Path, tmp_path: Path) -> None:
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    breaking, message = BROKEN[what]
    breaking(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        Llama.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
