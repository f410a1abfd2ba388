"""`--engine` and `--option` of the commands that run something."""

from __future__ import annotations

import json

import numpy as np
import pytest
from agreement import TORCH
from small_llama import make_llama
from typer.testing import CliRunner

from eindecomp.cli import main
from eindecomp.cli.options import options_from
from eindecomp.cli.root import app
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.experiments import EXPERIMENTS
from eindecomp.experiments.paper import chain

TEXT = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "matmul.ein"
    path.write_text(TEXT)
    return path


def command(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["eindecomp", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    return exit_.value.code or 0


def test_run_takes_any_engine(file, tmp_path, monkeypatch, capsys):
    outputs, shown = [], []
    for engine in (["threads"], ["threads", "--option", "workers=1"], ["apart"]):
        out = tmp_path / "out.npz"
        options = ["-p", 4, "--inputs", "sharded", "--random", "-o", out, "--engine", *engine]
        assert command(monkeypatch, "run", file, *options, "--json") == 0
        shown.append(json.loads(capsys.readouterr().out))
        outputs.append(np.load(out)["Z"])
    assert np.allclose(outputs[0], outputs[1])
    assert np.allclose(outputs[0], outputs[2])
    assert shown[1]["workers"] == 1
    assert len({record["bytes_moved"] for record in shown}) == 1
    assert 0 < shown[2]["peak_memory"] < shown[0]["peak_memory"]  # of one device, not of all


@pytest.mark.parametrize("engine", [TORCH])
@pytest.mark.parametrize("more", [[], ["--option", "gpu_memory=100MB"]])
def test_run_on_torch(engine, more, file, tmp_path, monkeypatch, capsys):
    for name, value in (("_PATIENCE", 0), ("_PAUSE", 0), ("is_wanted", lambda _: True)):
        monkeypatch.setattr(f"eindecomp.show.progress.{name}", value)
    options = ["-p", 4, "--random", "--check", "-o", tmp_path / "out.npz", "--json"]
    options += ["--engine", engine, "--option", "device=cpu", *more]
    assert command(monkeypatch, "run", file, *options) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["peak_memory"] > 0
    assert np.load(tmp_path / "out.npz")["Z"].shape == (4, 4)
    assert command(monkeypatch, "run", file, "--random", "--engine", engine, "--option", "device=x")
    assert "'x' is not a device of torch's" in capsys.readouterr().err


def test_run_says_what_moved_and_what_was_held(file, monkeypatch, capsys):
    assert command(monkeypatch, "run", file, "-p", 2, "--random", "--engine", "apart") == 0
    said = capsys.readouterr().out
    assert "moved between devices, peak memory " in said
    assert "on the fullest device" in said


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--engine", "thread"], 1, "there is no engine 'thread'; did you mean 'threads'?"),
        (["--option", "worker=2"], 1, "has no option 'worker'; did you mean 'workers'?"),
        (["--option", "qqq=2"], 1, "has no option 'qqq'; known: shortcuts, workers"),
        (["--option", "workers=none"], 1, "workers must be 1 or more, not 'none'"),
        (["--engine", "apart", "--option", "workers=2"], 1, "it takes none"),
        (["--option", "workers"], 2, "--option is such as workers=2"),
        (["--option", "=2"], 2, "--option is such as workers=2"),
        (["--option", "workers=1", "--option", "workers=2"], 2, "'workers' is given twice"),
    ],
)
@pytest.mark.parametrize("what", ["run", "llama", "bench"])
def test_mistakes(what, options, status, message, file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = {
        "run": [file, "--random", "-o", "out.npz"],
        "llama": [tmp_path, "--prompt", "hello"],
        "bench": ["chain", "--quick"],
    }[what]
    assert command(monkeypatch, what, *arguments, *options) == status
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert said.count(message) == 1
    assert said.count("shortcuts") <= 1  # options are not listed twice
    assert list(tmp_path.iterdir()) == [file]


def test_values_are_read_as_what_they_look_like():
    found = options_from(["a=-3", "b=1e-3", "c=False", "d=", "e=x=y"])
    assert found == {"a": -3, "b": 1e-3, "c": False, "d": "", "e": "x=y"}
    assert [type(value) for value in found.values()] == [int, float, bool, str, str]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("engine", ["apart", TORCH])
def test_llama_takes_any_engine(engine, tmp_path):
    make_llama(tmp_path)
    asked = ["llama", str(tmp_path), "--prompt", "1 20 30", "--max-tokens", "4"]
    usual = CliRunner().invoke(app, asked)
    assert usual.exit_code == 0, usual.output
    for more in (["--engine", engine], ["--option", "workers=1"]):
        found = CliRunner().invoke(app, [*asked, *more])
        assert found.exit_code == 0, found.output
        assert found.stdout == usual.stdout


@pytest.mark.one_in(3)
@pytest.mark.parametrize("engine", [TORCH])
@pytest.mark.parametrize("kept", ["host_memory=0", "host_memory=2MiB", "host_memory=1GB"])
def test_llama_in_less_memory_than_it_takes(engine, kept, tmp_path):
    """Of about 10 MB, in files of which the GPU and the host hold some."""
    make_llama(tmp_path, hidden_size=512, intermediate_size=768)
    asked = ["llama", str(tmp_path), "--prompt", "1 20 30", "--max-tokens", "3"]
    paged = ["--engine", engine, "--option", "device=cpu", "--option", "gpu_memory=72MB"]
    usual, found = (
        CliRunner().invoke(app, [*asked, *more]) for more in ([], [*paged, "--option", kept])
    )
    assert (usual.exit_code, found.exit_code) == (0, 0), found.output
    assert found.stdout == usual.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", ["apart", TORCH])
def test_bench_passes_the_engine_on(name, tmp_path, monkeypatch, capsys):
    engines = []

    def small(quick, say, engine):
        engines.append(engine)
        return chain(quick, say, sizes=(40,), devices=(2,), engine=engine)

    monkeypatch.setitem(EXPERIMENTS, "chain", small)
    asked = ["bench", "chain", "-o", tmp_path, "--json"]
    assert command(monkeypatch, *asked, "--engine", name) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == name
    assert command(monkeypatch, *asked, "--option", "workers=1") == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "threads"
    assert isinstance(engines[1], ThreadsEngine)
    assert engines[1].workers == 1
