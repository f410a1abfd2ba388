"""`eindecomp draw` and `eindecomp report`: pictures, tiles as text, and pages."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app

TEXT = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z\n"
SVG = "{http://www.w3.org/2000/svg}svg"


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("product.ein").write_text(TEXT)
    made = ed.plan(ed.parse(TEXT), 4, inputs="sharded")
    made.save("plan.json")
    return made


def run(*args):
    return CliRunner().invoke(app, list(args))


@pytest.mark.parametrize("more", [[], ["--tiles", "Z"], ["--unfolded"]])
@pytest.mark.parametrize("file", [["plan.json"], ["product.ein", "-p4", "--inputs", "sharded"]])
def test_pictures_are_those_of_python(file, more, plan):
    found = run("draw", *file, *more, "-o", "drawn.svg")
    assert (found.exit_code, found.stdout) == (0, "written: drawn.svg\n")
    drawn = plan.draw_tiles("Z") if "--tiles" in more else plan.draw(folded=not more)
    assert Path("drawn.svg").read_text() == drawn.svg
    assert ElementTree.parse("drawn.svg").getroot().tag == SVG  # noqa: S314 - our own file


def test_tiles_are_printed_where_no_file_is_named(plan):
    found = run("draw", "plan.json", "--tiles", "Z")
    assert found.exit_code == 0
    assert found.stdout.split() == str(plan.draw_tiles("Z")).split()


def test_tiles_as_json_are_what_devices_hold(plan):
    record = json.loads(run("draw", "plan.json", "--tiles", "Z", "--json").stdout)
    grid = plan.draw_tiles("Z")
    assert record["written"] is None
    home, *_ = record["layouts"]
    for device in range(4):
        own = [tile["box"] for tile in home["tiles"] if device in tile["devices"]]
        assert own == [[list(side) for side in box] for box in grid.tiles_on(device)]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "say where the picture goes"),
        (["--tiles", "Q", "-o", "a.svg"], 1, "'Q'"),
        (["--tiles", "Z", "-o", "a.png"], 1, "a.png: a picture is written to a file that ends in"),
    ],
)
def test_pictures_that_cannot_be_drawn(words, status, message, plan):
    found = run("draw", "plan.json", *words)
    assert (found.exit_code, found.stdout) == (status, "")
    assert message in " ".join(found.stderr.replace("│", " ").split())
    assert not list(Path().glob("a.*"))


def shown(path):
    """What a page shows, as its script finds it."""
    _, data = Path(path).read_text().split('<script type="application/json" id="data">')
    return json.loads(data.split("</script>")[0])


@pytest.mark.parametrize("file", [["plan.json"], ["product.ein", "-p4", "--inputs", "sharded"]])
def test_a_report_is_written(file, plan):
    found = run("report", *file, "--no-compare", "-o", "plan.html")
    assert (found.exit_code, found.stdout) == (0, "written: plan.html\n")
    content = shown("plan.html")
    assert (content["cost"], content["devices"]) == (plan.cost, 4)
    assert content["strategies"] == []


def test_a_report_compares_strategies(plan):
    assert run("report", "plan.json", "-o", "plan.html").exit_code == 0
    content = shown("plan.html")
    assert [row["name"] for row in content["strategies"]] == ["this plan", "sqrt"]


def test_a_run_is_traced(plan):
    assert run("run", "plan.json", "--random", "--trace", "t.json").exit_code == 0
    assert json.loads(Path("t.json").read_text())["traceEvents"]


def test_a_place_that_cannot_be_written_is_told_before_the_work(plan):
    found = run("run", "nowhere.ein", "--random", "--trace", "nowhere/run.json")
    assert found.stderr == "eindecomp: nowhere/run.json: No such file or directory\n"
