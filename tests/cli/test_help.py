"""`eindecomp --help`: what a newcomer reads first, examples that work, and one word for a thing."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import defaultdict
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.request import Request
from eindecomp.cli.root import GROUPS, app, load_command, root
from eindecomp.cli.terminal import STATUSES

MANUAL = Path(__file__).parents[2] / "docs" / "command_line.md"
PLANNING = ("plan", "explain", "compare", "draw", "report", "simulate", "run")
WIDE = {"COLUMNS": "120", "TERMINAL_WIDTH": "120"}


def commands():
    """All commands by their words, such as `import torch`."""
    found = {}
    for name in itertools.chain.from_iterable(GROUPS.values()):
        command = load_command(name)
        inner = getattr(command, "commands", None)
        found |= {f"{name} {k}": c for k, c in inner.items()} if inner else {name: command}
    return found


COMMANDS = commands()
FIRST_STEPS = cleandoc(root.__doc__).partition("\b\n")[2].replace("\\[", "[")


def examples_of(name):
    """The lines of examples that end the help of a command."""
    title, *lines = COMMANDS[name].epilog.removeprefix("\b\n").splitlines()
    assert title == "Examples:"
    return [line.strip() for line in lines]


def run(*args, **environment):
    return CliRunner(env=environment).invoke(app, list(args), prog_name="eindecomp")


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"]])
def test_the_first_screen_says_what_it_is_and_what_to_try(args):
    shown = run(*args).stdout
    lines = [line.strip() for line in shown.splitlines()]
    first = "Split a tensor computation over many devices so that the least data moves, and run it."
    assert first in " ".join(lines[:6])
    for step in FIRST_STEPS.splitlines():
        assert step.strip() in lines
    for group, members in GROUPS.items():
        assert any(f"─ {group} ─" in line for line in lines)
        for command in members:
            assert any(line.startswith(f"│ {command} ") for line in lines)


@pytest.mark.parametrize(("name", "line"), [i for own in GROUPS.values() for i in own.items()])
def test_the_list_says_how_the_help_of_each_command_begins(name, line):
    assert load_command(name).help.splitlines()[0] == line


def test_the_first_steps_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = FIRST_STEPS.splitlines()
    program = [line for line in lines if line.startswith("  ") and "eindecomp" not in line]
    (tmp_path / "product.ein").write_text("\n".join(program))
    tried = [shlex.split(line, comments=True)[1:] for line in lines if "  eindecomp" in line]
    assert len(tried) == 3
    for words in tried:
        assert run(*words).exit_code == 0


def test_every_status_is_told():
    lines = [line.split() for line in run("--help").stdout.splitlines()]
    for status, meaning in STATUSES.items():
        assert [str(status), *meaning.split()] in lines


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_understood(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in examples_of(name):
        words = shlex.split(line.partition(" < ")[0])
        words = words[words.index("eindecomp") + 1 :]
        assert words[: len(name.split())] == name.split()
        COMMANDS[name].make_context(name, words[len(name.split()) :])  # an error if it is wrong


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("rich", [True, False])
def test_help_ends_with_examples_a_line_each(name, rich, monkeypatch):
    monkeypatch.setattr(typer.core, "HAS_RICH", rich)
    shown = run(*name.split(), "--help", **WIDE).stdout
    assert ("─" in shown) == rich
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    examples = examples_of(name)
    assert examples
    assert lines[-len(examples) :] == examples


@pytest.mark.parametrize("name", PLANNING)
def test_planning_options_are_there_in_a_panel_of_their_own(name):
    options = {p.name: p for p in COMMANDS[name].params if p.param_type_name == "option"}
    for field in fields(Request):
        assert options[field.name].rich_help_panel == "Planning"
        assert options[field.name].default == field.default
    others = [p for n, p in options.items() if n not in {f.name for f in fields(Request)}]
    assert all(p.rich_help_panel is None for p in others)
    shown = run(name, "--help").stdout
    assert shown.index("─ Options ─") < shown.index("─ Planning ─") < shown.index("Examples:")


def test_commands_that_plan_are_those_that_have_the_options():
    asked = {n for n, c in COMMANDS.items() if any(p.name == "objective" for p in c.params)}
    assert asked == set(PLANNING)


def test_the_planner_has_a_word_for_each_option():
    """But for `time_limit`, and `--no-ties`, which Python says by an empty `tie`."""
    names = {field.name for field in fields(Request)} - {"time", "ties"}
    parameters = set(ed.plan.__annotations__)
    assert names <= parameters


def test_one_word_means_one_thing():
    """Options of one name take the same kind of value, and short names have one long name."""
    kinds, longs = defaultdict(set), defaultdict(set)
    for command in COMMANDS.values():
        assert any("--json" in p.opts for p in command.params)
        for p in command.params:
            if p.param_type_name != "option":
                continue
            metavar = "FILE" if p.metavar == "DIR" else p.metavar  # bench writes several files
            [long] = [name for name in p.opts if name.startswith("--")]
            kinds[long].add((p.name, metavar, p.multiple, p.is_flag))
            for short in set(p.opts) - {long}:
                longs[short].add(long)
    del kinds["--engine"]  # of calibrate, which measures only some
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
    assert longs == {"-o": {"--output"}, "-p": {"--devices"}}


def table(title):
    """The first two columns of a table of the manual, by the words of its head."""
    lines = MANUAL.read_text("utf-8").splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(f"| {title} |"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")][:2] for row in rows]


def test_the_manual_has_the_same_statuses_groups_and_words():
    assert table("status") == [[str(status), words] for status, words in STATUSES.items()]
    groups = [[group.lower(), re.findall("`(.*?)`", names)] for group, names in table("group")]
    wanted = {group: [n for n in own if n != "import"] for group, own in GROUPS.items()}
    wanted["Other frameworks"] += [name for name in COMMANDS if name.startswith("import ")]
    assert groups == [[group.lower(), names] for group, names in wanted.items()]
    known = {name for command in COMMANDS.values() for p in command.params for name in p.opts}
    words = {word for row in table("word") for word in re.findall("`(-.*?)`", row[0])}
    assert words <= known
