"""Every code block of README and docs runs, or says why it does not.

Doctests run by themselves. Here, page by page, from top to bottom and in one folder: ```ein blocks
are parsed, and written to a file if they have a title; so are other blocks with a title. ```python
blocks run in one namespace. ```console blocks run the lines that begin with `$ eindecomp`, and no
other block shows commands. A block behind `<!-- not run: … -->` does not run, for the reason that
stands there.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?:<!-- not run: (.*?) -->\n)?```(\w*)([^\n]*)\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ eindecomp (.*)$", re.M)
WRITTEN = ("python", "pycon", "console", "ein", "sh", "json", "toml", "text", "")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    not_run: str | None

    @property
    def is_doctest(self) -> bool:
        """Whether pytest runs it as a doctest."""
        return ">>>" in self.text

    @property
    def runs(self) -> bool:
        """Whether it is run here."""
        if self.not_run is not None or self.is_doctest:
            return False
        return self.language in ("python", "ein") or bool(COMMAND.search(self.text))


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    for reason, language, info, text in FENCE.findall(page.read_text()):
        title = re.search(r'title="([^"]+)"', info)
        shown = re.sub(r'^--8<-- "([^":]+)"$', _included, text, flags=re.M)
        found.append(Block(language, title and title[1], shown, reason or None))
    return found


def _included(snippet: re.Match[str]) -> str:
    return (ROOT / snippet[1]).read_text()


RUN = [page for page in PAGES if any(block.runs for block in blocks_of(page))]
NOT_RUN = [(page, block) for page in PAGES for block in blocks_of(page) if block.not_run]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks_of(page):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text)
        if not block.runs:
            continue
        if block.language == "ein":
            ed.parse(block.text, block.title or page.name)
        elif block.language == "python" and block.title is None:
            exec(compile(block.text, page.name, "exec"), names)  # noqa: S102 - it is ours
        for command in COMMAND.findall(block.text):
            _run_command(command)


def _run_command(command: str) -> None:
    found = CliRunner().invoke(app, shlex.split(command, comments=True))
    assert found.exit_code == 0, f"{command}\n{found.output}\n{found.exception!r}"
    assert found.output.strip() or " -o " in f" {command} ", command


def test_blocks_that_do_not_run_say_why(record_property):
    """They are few, and listed in the report of the tests."""
    listed = [f"{page.name}: {block.not_run}" for page, block in NOT_RUN]
    record_property("not run", "\n".join(listed))
    assert all(len(block.not_run.split()) > 2 for _, block in NOT_RUN), listed
    assert len(listed) <= 20, "\n".join(listed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_where_they_run(page):
    """No block hides from the tests: its language is known, and commands stand in ```console."""
    for block in blocks_of(page):
        assert block.language in WRITTEN, f"{page}: ```{block.language}"
        if block.language != "console":
            assert not re.search(r"^(\$ )?(eindecomp (?!:)|mpirun |torchrun )", block.text, re.M)
