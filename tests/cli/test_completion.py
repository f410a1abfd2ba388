"""Shell completion: the script, and what completes options, commands and their values."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eindecomp.cli import main
from eindecomp.planner.costs.presets import PRESETS

TEXT = "input Xs[i: 8, j: 8], Ys[j, k: 8]\nZ[i,k] <- sum Xs[i,j] * Ys[j,k]\noutput Z\n"


@pytest.fixture
def completed(tmp_path, monkeypatch, capfd):
    """What bash is offered for words of which the last is not finished."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.ein").write_text(TEXT)

    def complete(*words):
        monkeypatch.setenv("_EINDECOMP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["eindecomp", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setattr(sys, "argv", ["eindecomp"])
        with pytest.raises(SystemExit):
            main()
        printed, said = capfd.readouterr()
        assert said == ""
        return printed.split()

    return complete


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pl"], ["plan"]),
        (["re"], ["report"]),
        (["import", ""], ["torch", "jax", "hf"]),
        (["plan", "--obj"], ["--objective"]),
        (["plan", "--objective", "b"], ["bytes", "bound"]),
        (["plan", "--inputs", ""], ["free", "sharded"]),
        (["plan", "--strategy", "meg"], ["megatron", "megatron+zero"]),
        (["llama", "--strategy", "ul"], ["ulysses"]),
        (["compare", "--with", "sq"], ["sqrt"]),
        (["simulate", "--machine", ""], list(PRESETS)),
        (["run", "graph.ein", "--engine", "t"], ["threads", "torch"]),
        (["export", "--to", "j"], ["jax"]),
        (["plan", "graph.ein", "-o", "out.json", "--solver", "e"], ["exact"]),
    ],
)
def test_words_are_completed(words, offered, completed, tmp_path):
    assert completed(*words) == offered
    assert not (tmp_path / "out.json").exists()


def test_bash_takes_the_script():
    """As a user sources it: bash learns a function that asks this command for words."""
    shown = subprocess.run(
        [sys.executable, "-m", "eindecomp", "--show-completion", "bash"],
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "_EINDECOMP_COMPLETE=complete_bash" in shown.stdout
    told = subprocess.run(  # noqa: S603
        ["bash", "--norc", "-c", f"{shown.stdout}\ncomplete -p eindecomp"],  # noqa: S607
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "_eindecomp_completion eindecomp" in told.stdout
