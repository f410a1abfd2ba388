"""Documentation points to what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
