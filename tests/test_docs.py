"""Documentation points to what exists, has all that is public, and loads nothing from outside."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jobs import launch, needs_torch, run_command

import eindecomp as ed
from eindecomp.engines.result import Result, Stats
from eindecomp.graph.graph import Graph
from eindecomp.lang.dtypes import type_names
from eindecomp.lang.monoid import BUILTIN_NAMES
from eindecomp.lang.scalar import FUNCTIONS
from eindecomp.planner.comparison import Comparison

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
MOST_SVG = 60_000  # bytes of a committed picture
MOST_PNG = 150_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([\w./-]+\.(?:md|py|svg|png|ein|json))", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_the_glossary_names_modules_that_exist():
    rows = re.findall(r"\| `([\w/.]+)` \|$", (DOCS / "glossary.md").read_text(), re.M)
    missing = [row for row in rows if not (ROOT / "src" / "eindecomp" / row).exists()]
    assert len(rows) > 50
    assert not missing


def test_readme_leads_to_every_guide():
    text = (ROOT / "README.md").read_text()
    later = {"index.md", "policy.md"}  # the site's own first page; a page for maintainers
    guides = [page.name for page in sorted(DOCS.glob("*.md")) if page.name not in later]
    assert [name for name in guides if f"docs/{name}" not in text] == []


def test_the_language_page_is_complete():
    """Functions, types, aggregations, macros, and what graphs are built with."""
    page = (DOCS / "language.md").read_text()
    prelude = (ROOT / "src/eindecomp/graph/text/prelude.ein").read_text()
    operators = {"add", "sub", "mul", "div", "floordiv", "mod", "pow"}
    operators |= {"lt", "le", "gt", "ge", "eq", "ne"}  # written + - * / // % ** < <= > >= == !=
    names = {*FUNCTIONS} - operators | {*type_names} | {*BUILTIN_NAMES}
    names |= {*re.findall(r"^macro (\w+)", prelude, re.M)}
    building = {"input", "scalar", "output", "tie", "einsum", "fill", "gather", "scatter_add"}
    building |= {"concat", "slice", "reshape"}
    assert building <= {name for name, _ in inspect.getmembers(Graph)}
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", page)]
    missing += [name for name in sorted(building) if not re.search(rf"\b{name}\b", page)]
    assert not missing


@pytest.fixture(scope="module")
def pictures():
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_what_the_code_draws(pictures, tmp_path):
    """`python docs/make_pictures.py` makes them anew."""
    for name, make in pictures.PICTURES.items():
        make(tmp_path / name)
        committed = DOCS / "pictures" / name
        assert (tmp_path / name).read_text() == committed.read_text(), name
        assert committed.stat().st_size < MOST_SVG


def test_every_picture_is_made_and_shown(pictures):
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text())
    }
    there = {path.resolve() for path in (DOCS / "pictures").iterdir()}
    assert there <= shown, there - shown
    assert {(DOCS / "pictures" / name).resolve() for name in pictures.PICTURES} <= there
    assert (DOCS / "pictures" / "tutorial-report.png").stat().st_size < MOST_PNG


class Loaded(HTMLParser):
    """What a page loads by itself, and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.anchors.add(given["id"])
        if tag in ("script", "img", "iframe", "source", "video", "audio") and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("href"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly: a warning is an error."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
        check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def read_page(path: Path) -> Loaded:
    page = Loaded()
    page.feed(path.read_text())
    return page


@pytest.mark.long
def test_the_site_loads_nothing_from_outside(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    outside = {
        load
        for path in pages
        for load in read_page(path).loads
        if re.match(r"(?:[a-z]+:)?//", load) and not load.startswith("data:")
    }
    assert not outside
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", styles)


def test_the_api_page_has_every_public_name(site):
    anchors = read_page(site / "api.html").anchors
    elsewhere = {"__version__", "models", "solve"}  # a string; modules, whose names follow
    wanted = {f"eindecomp.{name}" for name in ed.__all__ if name not in elsewhere}
    wanted |= {f"eindecomp.models.{name}" for name in ed.models.__all__ if name != "llama"}
    wanted |= {f"eindecomp.models.llama.{name}" for name in ed.models.llama.__all__}
    errors = {"InfeasibleError"}  # listed among the errors
    wanted |= {f"eindecomp.solve.{name}" for name in {*ed.solve.__all__} - errors}
    assert sorted(wanted - anchors) == []
    assert "<blockquote>" not in (site / "api.html").read_text()  # an unfenced doctest


SHOWN = [ed.Plan, Graph, Result, ed.Executable, Comparison, Stats, ed.Machine, ed.SimulatedRun]


@pytest.mark.parametrize("of", SHOWN, ids=lambda of: of.__name__)
def test_the_api_page_has_every_method(site, of):
    anchors = read_page(site / "api.html").anchors
    names = [name for name, _ in inspect.getmembers(of, inspect.isfunction) if name[0] != "_"]
    prefix = f"eindecomp.{of.__name__}" if of.__name__ in ed.__all__ else ""
    prefix = prefix or f"{of.__module__}.{of.__name__}"
    assert prefix in anchors
    own = [name for name in names if name in vars(of)]
    assert [name for name in own if f"{prefix}.{name}" not in anchors] == []


@pytest.mark.long
@needs_torch
def test_the_script_for_pytorch_users_runs_on_four_ranks(tmp_path):
    page = (DOCS / "pytorch.md").read_text()
    [script] = re.findall(r"```python\n(# distributed.py.*?)```", page, re.S)
    path = tmp_path / "distributed.py"
    path.write_text(script)
    job = run_command([*launch("torch", 4), str(path)])
    assert job.status == 0, job.err
