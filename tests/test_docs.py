"""Documentation points to what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jobs import launch, needs_torch, run_command

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([\w./-]+\.(?:md|py|svg|png))", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_glossary_names_modules_that_exist():
    rows = re.findall(r"\| `([\w/.]+)` \|$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    missing = [row for row in rows if not (ROOT / "src" / "eindecomp" / row).exists()]
    assert len(rows) > 50
    assert not missing


def test_readme_lists_every_page():
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if page.name not in text] == []


@needs_torch
def test_the_script_for_pytorch_users_runs_on_four_ranks(tmp_path):
    page = (ROOT / "docs" / "pytorch.md").read_text()
    [script] = re.findall(r"```python\n(# distributed.py.*?)```", page, re.S)
    path = tmp_path / "distributed.py"
    path.write_text(script)
    job = run_command([*launch("torch", 4), str(path)])
    assert job.status == 0, job.err
