"""The report in a real browser: Debian's chromium, driven by selenium."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import eindecomp as ed
from eindecomp.show.words import ratio, short
from layered_graph import layers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

selenium = pytest.importorskip("selenium", reason="the browser is driven by selenium")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"
)
LAYERS = 8


FILL = """(({ scene, view }) => {
    const box = scene.boxes.find((each) => each.height > 40);
    const x = (box.x + box.width - 6) * view.k + view.x, y = (box.y + 8) * view.k + view.y;
    return [...view.context.getImageData(x, y, 1, 1).data].slice(0, 3).join(" ");
})(eindecomp.graph)"""
"""The colour that the canvas has inside a box."""


class Page:
    """One page in the browser."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver, self.path = driver, path

    def open(self, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        """Load it afresh in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        features = [{"name": "prefers-color-scheme", "value": scheme}, motion]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.complaints()  # those of a page before are not of this one
        self.driver.get(self.path.as_uri())
        self.until("document.querySelector('#spots button')")
        return self

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(f"return ({code})", *arguments)

    def until(self, code: str) -> Any:
        """Wait for something to be true in the page, and return it."""
        return WebDriverWait(self.driver, 10, 0.02).until(lambda _: self.js(code))

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [e.text for e in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def complaints(self) -> list[Any]:
        """What the browser has complained of since it was last asked."""
        return self.driver.get_log("browser")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def plan() -> ed.Plan:
    return ed.plan(layers(LAYERS), mesh={"<img>": 2, "x": 2}, inputs="sharded")


@pytest.fixture(scope="module")
def page(plan: ed.Plan, driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("report") / "plan.html"
    plan.report(path)
    return Page(driver, path)


def test_it_opens_from_a_file_without_a_complaint(page: Page, plan: ed.Plan) -> None:
    page.open()
    assert page.texts("#figures .value")[0] == "24 KiB"
    assert f"for {plan.devices} devices" in page.find("#summary").text
    assert page.texts("main h2")[0] == "In plain words"
    assert page.js("performance.getEntriesByType('resource').length") == 0
    assert page.complaints() == []


def test_names_are_text_and_nothing_else(page: Page) -> None:
    page.open()
    assert "<img>=2" in page.find("#summary").text
    assert page.js("document.querySelectorAll('img').length") == 0
    page.js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')")
    page.until("document.querySelector('img').complete")
    assert page.js("window.ran === undefined")
    assert any("Content Security Policy" in line["message"] for line in page.complaints())


def test_a_click_on_a_box_shows_its_vertex(page: Page, plan: ed.Plan) -> None:
    page.open()
    page.find("#spots button[data-vertex=H0]").click()
    panel = page.find("#panel").text
    assert "H0[b,h] <- sum X0[b,i] * W0[i,h]" in panel
    assert "b 16 × h 32" in panel
    assert "would cost" in panel
    assert page.texts("#panel .chip") == [f"{d}/{n}" for d, n in plan.parts["H0"].items() if n > 1]
    assert page.texts("#panel .tiles td")
    page.find("#panel .reads .link").click()
    assert page.find("#panel .name").text == "X0"
    assert page.complaints() == []


def test_layers_unfold_and_fold(page: Page, plan: ed.Plan) -> None:
    page.open()
    folded = page.js("eindecomp.graph.scene.boxes.length")
    assert folded < len(plan.graph.vertices)
    page.find("#spots button[data-kind=fold]").send_keys(Keys.ENTER)
    assert page.js("eindecomp.graph.scene.boxes.length") == len(plan.graph.vertices)
    page.find("#unfold").click()
    assert page.js("eindecomp.graph.scene.boxes.length") == folded
    page.find("#unfold").click()
    assert page.find("#unfold").get_attribute("aria-pressed") == "true"
    drawn = page.js("eindecomp.graph.scene.edges.reduce((sum, edge) => sum + edge.bytes, 0)")
    assert drawn == sum(plan.traffic.edges.values())
    assert page.complaints() == []


@pytest.mark.long
def test_what_moves_sorts_and_filters(page: Page, plan: ed.Plan) -> None:
    page.open()
    shown = page.texts("#moves tbody td:nth-child(4)")
    head = page.find("#moves th:nth-child(4)")
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    by_name = page.texts("#moves tbody td:nth-child(4)")
    assert sorted(shown) == sorted(by_name)
    assert by_name == sorted(by_name, key=lambda name: (name[0], int(name[1:])))
    head.find_element(By.TAG_NAME, "button").click()
    assert page.texts("#moves tbody td:nth-child(4)") == by_name[::-1]
    page.find("#vertices input").send_keys("relu")
    assert page.texts("#vertices tbody th") == [f"R{k}" for k in range(LAYERS)]
    page.find("#vertices tbody th button").click()
    assert page.find("#panel .name").text == "R0"


def test_search_finds_a_vertex(page: Page) -> None:
    page.open()
    page.find("#search").send_keys("R5")
    assert page.texts("#found b")[0] == "R5"
    page.press(Keys.ENTER)
    assert page.find("#panel .name").text == "R5"
    assert page.js("eindecomp.graph.sees(eindecomp.graph.scene.boxes"
                   "[eindecomp.graph.scene.boxOf[eindecomp.graph.selected]])")  # fmt: skip
    page.find("#search").send_keys("nothing like it")
    assert page.texts("#found li") == ["no such vertex"]


@pytest.mark.long
def test_everything_can_be_reached_by_keyboard(page: Page) -> None:
    page.open()
    page.js("document.body.focus()")
    reached: list[str] = []
    for _ in range(20):
        page.press(Keys.TAB)
        reached.append(page.js("document.activeElement.id || document.activeElement.className"))
        if reached[-1] == "view":
            break
    assert reached[0] == "skip"
    assert {"theme", "search", "zoom-in", "fit", "unfold", "view"} <= set(reached)
    before = page.js("eindecomp.graph.view.k")
    page.press("+")
    assert page.js("eindecomp.graph.view.k") > before
    at = page.js("eindecomp.graph.view.x")
    page.press(Keys.ARROW_LEFT)
    assert page.js("eindecomp.graph.view.x") == at + 70
    page.press("0")
    assert page.js("eindecomp.graph.view.k") == before
    page.press(Keys.TAB)
    assert page.js("document.activeElement.parentElement.id") == "spots"
    assert page.js("document.activeElement.matches(':focus-visible')")
    name = page.js("document.activeElement.dataset.vertex")
    page.press(Keys.ENTER)
    assert page.find("#panel .name").text == name
    assert page.js("document.activeElement.id") == "panel"
    page.press(Keys.ESCAPE)
    assert page.js("document.activeElement.dataset.vertex") == name


def test_dragging_moves_the_graph_and_selects_nothing(page: Page) -> None:
    page.open()
    before = page.js("[eindecomp.graph.view.x, eindecomp.graph.view.y]")
    box = page.find("#spots button[data-vertex=H0]")
    chain = webdriver.ActionChains(page.driver, duration=20)
    chain.click_and_hold(box).move_by_offset(20, 10).move_by_offset(20, 10).release().perform()
    after = page.js("[eindecomp.graph.view.x, eindecomp.graph.view.y]")
    assert after[0] > before[0]
    assert after[1] > before[1]
    assert page.js("eindecomp.graph.selected") == -1


def test_the_wheel_zooms_a_graph_that_has_the_focus_and_scrolls_past_others(page: Page) -> None:
    page.open()
    view = page.find("#view")
    page.js("document.getElementById('graph').scrollIntoView({behavior: 'instant'})")
    wheel = webdriver.ActionChains(page.driver, duration=20)
    origin = ScrollOrigin.from_element(view)
    zoom, top = page.js("[eindecomp.graph.view.k, scrollY]")
    wheel.scroll_from_origin(origin, 0, -60).perform()
    page.until(f"scrollY !== {top}")
    assert page.js("eindecomp.graph.view.k") == zoom
    page.js("document.getElementById('view').focus({preventScroll: true})")
    top = page.js("scrollY")
    wheel.scroll_from_origin(origin, 0, -60).perform()
    page.until(f"eindecomp.graph.view.k > {zoom}")
    assert page.js("scrollY") == top


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_reader_and_the_button(page: Page, scheme: str) -> None:
    page.open(scheme=scheme)
    shades = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
    fills = {"light": "255 255 255", "dark": "27 34 44"}
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.js(background) == shades[scheme]
    for wanted in ("light", "dark"):
        page.find("#theme").click()
        assert page.js(background) == shades[wanted]
        page.until(f"({FILL}) === '{fills[wanted]}'")
    page.find("#theme").click()
    assert page.js(background) == shades[scheme]


def test_a_narrow_screen_never_scrolls_sideways(page: Page) -> None:
    page.open(390, 844)
    page.find("#spots button[data-vertex=H0]").click()
    assert page.js("document.documentElement.scrollWidth") == 390
    stage, panel = (page.find(name).rect for name in (".stage", "#panel"))
    assert panel["y"] >= stage["y"] + stage["height"] - 1
    page.find("#unfold").click()
    assert page.js("document.documentElement.scrollWidth") == 390
    assert page.complaints() == []


def test_numbers_are_rounded_as_python_rounds_them(page: Page, plan: ed.Plan) -> None:
    amounts = [250.5 * 1024, 251.5 * 1024, 10.25 * 1024, 1.125 * 1024, 1.375 * 1024, 1023, 99.96, 5]
    ratios = [1.0, 1.125, 9.999, 16.0, 16.25, 99.97, 1234.5, 0.615, 2.675]
    page.open()
    assert page.js("arguments[0].map(eindecomp.words.bytes)", amounts) == [
        short(amount, "bytes") for amount in amounts
    ]
    assert page.js("arguments[0].map(eindecomp.words.times)", ratios) == [*map(ratio, ratios)]
    ours = page.find("#strategies tbody tr td:last-child").text
    assert ours == dict(zip(page.texts("#figures dt"), page.texts("#figures .value"), strict=True))[
        "memory"
    ]  # fmt: skip


def test_a_page_is_printed_in_light_colours_at_once(page: Page) -> None:
    page.open(scheme="dark")
    page.until(f"({FILL}) === '27 34 44'")
    printed = page.js(f"(() => {{ dispatchEvent(new Event('beforeprint')); return {FILL}; }})()")
    assert printed == "255 255 255"
    again = page.js(f"(() => {{ dispatchEvent(new Event('afterprint')); return {FILL}; }})()")
    assert again == "27 34 44"
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    style = "getComputedStyle(document.querySelector('{}')).{}"
    assert page.js(style.format("#panel", "display")) == "none"
    assert page.js(style.format(".view canvas", "objectFit")) == "contain"
    assert page.js(style.format("body", "printColorAdjust")) == "exact"
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.fixture(scope="module")
def deep(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A chain of vertices of which no two are alike, so that nothing folds."""
    text = "input X0[a: 4, b: 4]\n"
    for k in range(1, 701):
        text += f"X{k}[a,b] <- X{k - 1}[a,b] * {k}\n"
    path = tmp_path_factory.mktemp("deep") / "plan.html"
    own = ed.plan(ed.parse(f"{text}output X700"), 2, rewrite=False)
    own.report(path, compare=False, time_limit=0)
    return Page(driver, path)


@pytest.mark.long
def test_a_deep_graph_opens_at_its_top(deep: Page) -> None:
    deep.open()
    k, at = deep.js(
        "[eindecomp.graph.view.k, eindecomp.graph.sees(eindecomp.graph.scene.boxes[0])]"
    )
    assert k > 0.15
    assert at
    deep.find("#fit").click()
    assert deep.js("eindecomp.graph.view.k") < 0.15


@pytest.mark.long
def test_a_long_table_shows_more_rows_when_asked(deep: Page) -> None:
    deep.open()
    shown = "document.querySelectorAll('#vertices tbody tr').length"
    assert deep.js(shown) == 100
    first = deep.find("#vertices tbody tr")
    deep.find("#vertices .more button").click()
    assert deep.js(shown) == 600
    assert deep.find("#vertices tbody tr") == first
    deep.find("#vertices .more button").click()
    assert deep.js(shown) == 701
    assert len(set(deep.js(
        "[...document.querySelectorAll('#vertices tbody th')].map((name) => name.textContent)"
    ))) == 701  # fmt: skip
    assert not deep.find("#vertices .more").is_displayed()
    deep.find("#vertices th button").click()
    assert deep.js(shown) == 100
    assert deep.find("#vertices tbody tr") == first
    assert deep.complaints() == []
