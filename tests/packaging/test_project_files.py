"""What the project says about itself is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import eindecomp as ed
from eindecomp.engines import step_folders
from eindecomp.errors import EXTRAS
from eindecomp.store import machine_file, plan_file

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGES = [ROOT / name for name in ("CHANGELOG.md", "RELEASING.md", "docs/policy.md")]


def test_contributing_lists_the_layers_from_the_top():
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    layers = [name for row in contract["layers"] for name in re.split(r" [:|] ", row)]
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert listed == layers


def test_contributing_names_files_that_exist():
    lines = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    rows = [line for line in lines if re.match(r"\| `\w+` \|", line)]
    named = [
        f"src/eindecomp/{row.split('`')[1]}/{name}"
        for row in rows
        for name in re.findall(r"`([\w/]+\.(?:py|lark|ein))`", row)
    ]
    prose = " ".join(line for line in lines if line not in rows)
    named += [
        path if (ROOT / path.split("/")[0]).is_dir() else f"src/eindecomp/{path}"
        for path in re.findall(r"`(\w+(?:/\w+)+\.\w+)`", prose)
    ]
    assert len(named) > 25
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_changelog_begins_with_what_is_not_released_or_with_this_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    assert headings[1:2] in ([], [ed.__version__])


def test_the_policy_has_the_versions_of_all_files():
    text = (ROOT / "docs" / "policy.md").read_text()
    for own in (plan_file.PLAN_FILE, machine_file.MACHINE_FILE):
        assert f"`{own.name}`, version {own.version} |" in text
    assert f"`{step_folders.FORMAT}`, version {step_folders.VERSION} |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_project_files_lead_somewhere(page):
    links = re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_hooks_run_what_the_tests_run():
    makefile = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    own = [entry.removesuffix(" --force-exclude") for entry in entries if ".venv" in entry]
    assert own == [entry for entry in own if f"\t{entry}" in makefile]
    assert len(own) == 4


def test_every_package_that_may_be_missing_is_one_of_its_extra():
    extras = PROJECT["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        if extra and package != "jaxlib":
            assert any(re.match(rf"{package}\b", each) for each in extras[extra])
