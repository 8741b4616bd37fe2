"""report.html as a person has it: opened from disk in a browser, on a screen, a phone, on paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from make_logs import ROOT
from playwright.sync_api import Browser, Locator, Page, expect
from report_examples import SCRIPT, mxnet_campaign, tensorflow_campaign

from dlperf_runner.commands.report import make_report

DESK = {"width": 1200, "height": 900}
PHONE = {"width": 360, "height": 740}
HIGH = {"width": 1200, "height": 1800}  # shows the first plot whole: a wheel does not move it
SCREENS = ROOT / ".cache" / "report-screenshots"


@dataclass
class Opened:
    """A page, and what it did while it was open."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stopped: list[str | None] = field(default_factory=list)


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Campaigns are named by their time, which is wider than the numbers of a column."""
    root = tmp_path_factory.mktemp("browser")
    campaigns = [
        mxnet_campaign(root / "20261121T063921Z"),
        tensorflow_campaign(root / "20261121T074510Z"),
    ]
    make_report(campaigns, root / "report")
    return root / "report" / "report.html"


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("planted")
    make_report([mxnet_campaign(root / "mxnet", planted=True)], root / "report")
    return root / "report" / "report.html"


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    contexts = []

    def open_page(path: Path, size: dict[str, int] = DESK, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        seen = Opened(context.new_page())
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on("requestfailed", lambda request: seen.stopped.append(request.failure))
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and seen.errors.append(message.text)
            ),
        )
        seen.page.goto(path.as_uri())
        return seen

    yield open_page
    for context in contexts:
        context.close()


def keep(page: Page, name: str) -> None:
    """A picture of what is seen first, for people: `.cache/report-screenshots`."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png")


def rows(page: Page, table: str) -> list[list[str]]:
    found: list[list[str]] = page.evaluate(
        "id => Array.from(document.getElementById(id).tBodies[0].rows,"
        " row => Array.from(row.cells, cell => cell.textContent))",
        table,
    )
    return found


def brightness(page: Page, expression: str) -> float:
    """From 0 (black) to 255 (white), of a colour that is computed."""
    colour = page.evaluate(expression)
    red, green, blue = (float(number) for number in re.findall(r"[\d.]+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


BACKGROUND = "getComputedStyle(document.body).backgroundColor"
OPEN_DETAILS = "document.querySelectorAll('details').forEach(item => { item.open = true; })"


def live(page: Page, number: int = 0) -> Locator:
    """A plot that somebody points at."""
    plot = page.locator("figure .plot").nth(number)
    plot.hover(position={"x": 5, "y": 5})
    page.wait_for_function(
        "n => document.querySelectorAll('figure .plot')[n].dataset.live === 'yes'", arg=number
    )
    return plot


def test_a_live_plot_says_values_and_zooms(opened: Open, report: Path) -> None:
    seen = opened(report, HIGH)
    page = seen.page
    plot = live(page)
    plot.locator(".mark-symbol.role-mark path").last.hover()
    tip = page.locator("#vg-tooltip-element")
    assert "samples/s on 32 devices" in tip.inner_text() or "9,579.74" in tip.inner_text()
    assert tip.is_visible()
    line = plot.locator('.mark-line path[stroke-width="2"]').first
    before = line.get_attribute("d")
    plot.locator("svg").hover()
    page.mouse.wheel(0, -200)
    assert line.get_attribute("d") == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function(
        "([line, before]) => line.getAttribute('d') !== before", arg=[line.element_handle(), before]
    )
    assert seen.requests == [report.as_uri()]
    assert seen.errors == []


def test_an_entry_of_the_legend_hides_its_line_and_shows_it_again(
    opened: Open, report: Path
) -> None:
    seen = opened(report)
    plot = live(seen.page)
    entry = plot.get_by_role("button", name="mxnet", exact=True)
    lines = plot.locator(".mark-line path")
    both = [line.get_attribute("d") for line in lines.all()]
    assert len(both) == 2  # the ideal one and the measured one
    assert entry.get_attribute("aria-pressed") == "true"
    entries = plot.get_by_role("button").all()
    assert [entry.get_attribute("aria-label") for entry in entries] == [
        entry.locator("text").text_content() for entry in entries
    ]
    entry.click()
    expect(lines).to_have_count(1)
    assert lines.first.get_attribute("d") == both[0]
    assert entry.get_attribute("aria-pressed") == "false"
    keep(seen.page, "hidden")
    entry.press("Enter")
    expect(lines).to_have_count(2)
    assert [line.get_attribute("d") for line in lines.all()] == both
    assert entry.get_attribute("aria-pressed") == "true"
    assert seen.errors == []


def test_what_is_planted_does_not_run_in_a_live_plot(opened: Open, planted: Path) -> None:
    seen = opened(planted)
    live(seen.page).locator(".mark-symbol.role-mark path").last.hover()
    seen.page.evaluate(OPEN_DETAILS)
    seen.page.wait_for_function("!document.querySelector('details .plot:not([data-live=yes])')")
    assert seen.page.title().startswith("Benchmark report")
    assert seen.requests == [planted.as_uri()]
    assert seen.errors == []


def test_series_open_by_a_click(opened: Open, report: Path) -> None:
    page = opened(report).page
    details = page.locator("details").first
    assert details.locator("svg").count() == 0
    details.locator("summary").click()
    details.locator("svg").first.wait_for()
    box = details.locator("svg").first.bounding_box()
    assert box is not None
    assert box["height"] > 150


def test_a_table_is_sorted_by_a_click_and_back_by_another(opened: Open, report: Path) -> None:
    page = opened(report).page
    before = rows(page, "table-1")
    head = page.locator("#table-1 th", has_text=re.compile("^samples/s$"))
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    # By number, not by letter: 1,494.58 is above 384.19.
    assert rows(page, "table-1") == before
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert rows(page, "table-1") == before[::-1]
    other = page.locator("#table-1 th").first
    other.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") is None
    # Equal keys stay in the order that they had.
    assert [row[0] for row in rows(page, "table-1")] == ["1", "1", "1", "1", "2", "4"]


def test_absent_cells_stay_below(opened: Open, report: Path) -> None:
    page = opened(report).page
    head = page.locator("#beside-1 th").nth(4).get_by_role("button")
    for expected in (["414.73", "3,275.93", "12,671.90"], ["12,671.90", "3,275.93", "414.73"]):
        head.click()
        assert [row[4] for row in rows(page, "beside-1")] == [*expected, "", "", ""]


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_heads_of_columns_keep_to_their_columns(
    opened: Open, report: Path, size: dict[str, int]
) -> None:
    page = opened(report, size).page
    beyond = page.evaluate(
        """Array.from(document.querySelectorAll('th'), th => {
          const range = document.createRange();
          range.selectNodeContents(th);
          const [text, cell] = [range.getBoundingClientRect(), th.getBoundingClientRect()];
          return [th.textContent, text.left < cell.left || text.right > cell.right];
        }).filter(([, outside]) => outside)"""
    )
    assert beyond == []
    # A word that fits is not broken: `speedup` stands in one line.
    heights = page.evaluate(
        "Array.from(document.querySelectorAll('#table-1 th button'), b => b.offsetHeight)"
    )
    assert heights[0] == heights[3] == min(heights)


def test_nothing_is_wider_than_a_phone(opened: Open, report: Path) -> None:
    page = opened(report, PHONE).page
    page.evaluate(OPEN_DETAILS)
    keep(page, "phone")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.evaluate(
        "Array.from(document.querySelectorAll('.plot svg, .answer li, h2, p'),"
        " e => e.getBoundingClientRect().right).every(right => right <= innerWidth)"
    )
    # A table that is wider scrolls in its own box, which the keyboard reaches.
    box = page.locator(".wide").first
    assert box.evaluate("e => e.scrollWidth > e.clientWidth && e.tabIndex === 0")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(
    opened: Open, report: Path, scheme: str
) -> None:
    page = opened(report, scheme=scheme).page
    keep(page, scheme)
    is_dark = {"light": False, "dark": True}[scheme]
    assert (brightness(page, BACKGROUND) < 60) is is_dark
    button = page.get_by_role("button", name="Light or dark")
    assert button.get_attribute("aria-pressed") == str(is_dark).lower()
    button.click()
    assert (brightness(page, BACKGROUND) < 60) is not is_dark
    assert button.get_attribute("aria-pressed") == str(not is_dark).lower()
    page.reload()
    assert (brightness(page, BACKGROUND) < 60) is not is_dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_lines_stand_out(opened: Open, report: Path, scheme: str) -> None:
    """WCAG 2.1: 4.5:1 for text, 3:1 for what is drawn."""
    page = opened(report, scheme=scheme).page
    page.evaluate(OPEN_DETAILS)
    low = page.evaluate(
        """() => {
          const luminance = colour => {
            const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(value => {
              value /= 255;
              return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const ground = element => {
            for (let at = element; at; at = at.parentElement) {
              const colour = getComputedStyle(at).backgroundColor;
              if (!/, 0\\)$/.test(colour)) return colour;
            }
            return "rgb(255, 255, 255)";
          };
          const contrast = (one, other) => {
            const [a, b] = [luminance(one), luminance(other)].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
          };
          const found = [];
          const texts = "h1,h2,h3,p,a,td,th,li,summary,caption,code,button";
          document.querySelectorAll(texts).forEach(e => {
            const ratio = contrast(getComputedStyle(e).color, ground(e));
            if (ratio < 4.5) found.push([e.tagName, e.textContent.slice(0, 30), ratio]);
          });
          document.querySelectorAll("svg text").forEach(e => {
            const ratio = contrast(getComputedStyle(e).fill, ground(e));
            if (ratio < 4.5) found.push(["text", e.textContent, ratio]);
          });
          const drawn = ".mark-line path, .role-mark.mark-symbol path, .role-axis-domain line";
          document.querySelectorAll(drawn).forEach(e => {
            const style = getComputedStyle(e);
            const colour = style.stroke === "none" ? style.fill : style.stroke;
            const ratio = contrast(colour, ground(e));
            if (ratio < 3) found.push([e.parentNode.className.baseVal, colour, ratio]);
          });
          return found;
        }"""
    )
    assert low == []


def test_print_is_light_and_whole(opened: Open, report: Path) -> None:
    page = opened(report, scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#theme").is_hidden()
    assert page.locator("details:not([open])").count() == 0
    page.set_viewport_size({"width": 720, "height": 1020})  # A4 at its margins
    assert page.evaluate("document.documentElement.scrollWidth") == 720
    ink = brightness(page, "getComputedStyle(document.querySelector('td')).color")
    assert ink < 60
    assert len(page.pdf(format="A4", print_background=False)) > 20_000
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_the_page_stops_what_escaping_would_have_missed(
    opened: Open, report: Path, tmp_path: Path
) -> None:
    """The policy is the second lock: scripts, handlers and requests that get in do nothing."""
    hostile = (
        f"{SCRIPT}<img src='https://planted.example/x.png' onerror=\"document.title='planted'\">"
        "<p id='planted' style='color: red'>planted</p>"
    )
    html = report.read_text(encoding="utf-8").replace("<h2 id", hostile + "<h2 id", 1)
    page = tmp_path / "report.html"
    page.write_text(html, encoding="utf-8")
    seen = opened(page)
    assert seen.page.title().startswith("Benchmark report")
    assert (
        seen.page.locator("#planted").evaluate("e => getComputedStyle(e).color") != "rgb(255, 0, 0)"
    )
    assert seen.stopped == ["csp"] * (len(seen.requests) - 1)
    assert len([error for error in seen.errors if "Content Security Policy" in error]) >= 3


def test_it_is_read_without_scripts(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=DESK)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("#theme").is_hidden()
    assert page.locator("#table-1 tbody tr").count() == 6
    assert page.locator("figure svg").first.bounding_box() is not None
    context.close()
