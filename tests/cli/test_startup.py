"""The program before its command runs: it loads little, and an interrupt then is no exception."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """
import json, signal, sys
from importlib.abc import MetaPathFinder
import eindecomp_command

WATCHED = ("eindecomp", "eindecomp.cli.root", "eindecomp.cli.measure")
at_interrupts = {}

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in WATCHED:
            at_interrupts[name] = signal.getsignal(signal.SIGINT).name

sys.meta_path.insert(0, Watch())
sys.argv = ["eindecomp", *sys.argv[1:]]
try:
    eindecomp_command.main()
finally:
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(json.dumps([at_interrupts, usual, [*sys.modules]]), file=sys.stderr)
"""
HEAVY = {"numpy", "scipy", "numba", "lark", "torch", "jax", "ray", "eindecomp.graph"}
"""What takes long to load, and none of which says what `eindecomp` is."""


def start(*words: str) -> tuple[str, dict[str, str], bool, set[str]]:
    """What a new process prints, what an interrupt does meanwhile and after, what is loaded."""
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=True
    )
    at_interrupts, usual, modules = json.loads(run.stderr.splitlines()[-1])
    return run.stdout, at_interrupts, usual, set(modules)


def test_interrupts_end_the_program_while_modules_are_loaded(tmp_path):
    problem = {"nodes": {"costs": [[3, 1]], "usages": [[1, 1]], "intervals": [[0, 1]]}}
    problem |= {"name": "one", "usage_limit": 9, "edges": {"nodes": [], "costs": []}}
    (tmp_path / "problem.json").write_text(json.dumps({"problem": problem}))
    _, at_interrupts, usual, _ = start("solve", str(tmp_path / "problem.json"))
    watched = ("eindecomp", "eindecomp.cli.root", "eindecomp.cli.measure")
    assert at_interrupts == dict.fromkeys(watched, "SIG_DFL")
    assert usual


@pytest.mark.parametrize(("words", "more"), [("--version", {"rich"}), ("--help", set())])
def test_the_program_itself_needs_none_of_what_commands_need(words, more):
    printed, _, _, modules = start(words)
    assert "eindecomp" in printed
    assert not modules & (HEAVY | more)


def test_importing_the_package_loads_none_of_it():
    code = "import sys, eindecomp; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert not {*run.stdout.split()} & (HEAVY | {"typer", "rich"})
