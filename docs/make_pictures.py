"""Makes the pictures of the documentation: `python docs/make_pictures.py`.

They are the same everywhere, so that a test can tell whether a committed picture is what the code
draws. The report's screenshot needs Chromium; `--report` takes it as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eindecomp as ed

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
PRODUCT = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
TWICE = "input X[i: 8, j: 8]\nA[i,j] <- exp(X[i,j])\noutput A"


def first_program(page: str) -> ed.Plan:
    """The plan for 8 devices of the first graph that a page parses, so that both stay the same."""
    text = (ROOT / page).read_text()
    written = text.split('ed.parse("""', 1)[1].split('"""', 1)[0]
    graph = ed.parse("\n".join(line.removeprefix("... ") for line in written.splitlines()))
    return ed.plan(graph, devices=8, inputs="sharded")


def cut_product(**pieces: int) -> ed.Plan:
    """The plan of an 8 × 8 product that cuts its labels into these pieces."""
    devices = 1
    for number in pieces.values():
        devices *= number
    strategy: Any = {"labels": [*pieces], "degrees": pieces}
    return ed.plan(ed.parse(PRODUCT), devices, strategy=strategy)


def nested(*axes: str) -> ed.Plan:
    """The plan of an 8 × 8 matrix whose rows these axes cut, the first outermost."""
    return ed.plan(ed.parse(TWICE), 4, pin={"A": {"i": list(axes)}})


def attention() -> ed.Plan:
    """The plan of multi-head attention for 8 devices."""
    return ed.plan(ed.load(ROOT / "examples" / "multihead_attention.ein"), devices=8)


PICTURES: dict[str, Callable[[Path], Any]] = {
    "readme-plan.svg": lambda path: first_program("README.md").draw(path),
    "tutorial-plan.svg": lambda path: first_program("docs/tutorial.md").draw(path),
    "tutorial-tiles.svg": lambda path: first_program("docs/tutorial.md").draw_tiles("H", path),
    "attention-plan.svg": lambda path: attention().draw(path),
    "product-4114-x.svg": lambda path: cut_product(i=4, k=4).draw_tiles("X", path),
    "product-4114-y.svg": lambda path: cut_product(i=4, k=4).draw_tiles("Y", path),
    "product-2224-x.svg": lambda path: cut_product(i=2, j=2, k=4).draw_tiles("X", path),
    "product-2224-y.svg": lambda path: cut_product(i=2, j=2, k=4).draw_tiles("Y", path),
    "nested-01.svg": lambda path: nested("axis0", "axis1").draw_tiles("A", path),
    "nested-10.svg": lambda path: nested("axis1", "axis0").draw_tiles("A", path),
}


def screenshot(path: Path) -> None:
    """The report of the tutorial's plan, as Chromium shows it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("there is no Chromium to take the screenshot")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "plan.html"
        first_program("docs/tutorial.md").report(page)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        shot = [f"--screenshot={path}", "--window-size=1000,1240", page.as_uri()]
        subprocess.run([browser, *options, *shot], check=True, capture_output=True)  # noqa: S603


def main() -> None:
    """Make all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        make(FOLDER / name)
    if "--report" in sys.argv:
        screenshot(FOLDER / "tutorial-report.png")


if __name__ == "__main__":
    main()
