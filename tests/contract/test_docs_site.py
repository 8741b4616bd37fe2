"""The documentation site builds strictly, needs no network, and names only what exists."""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer
from captured import captured
from command_line import output
from make_logs import gluoncv, published, published_tree, write

from dlperf_runner.commands import app

ROOT = Path(__file__).resolve().parents[2]
PAPERS = [
    *(ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Attributes that make a browser fetch something; a link that a person follows is none of them.
FETCHING = {"src", "srcset", "poster", "data", "action"}


class Page(HTMLParser):
    """What a page fetches, where it links to, and which anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: set[str] = set()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.fetched |= {values[name] for name in FETCHING if values.get(name)}
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.add(values["href"])
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    target = tmp_path_factory.mktemp("site")
    # Not --quiet, with which --strict counts no warning.
    argv = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target)
    done = captured(*argv, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    pages = {path.resolve(): Page(path) for path in target.rglob("*.html")}
    assert len(pages) > 40  # the guides, and a page for each role
    return pages


def test_no_page_requests_anything_from_elsewhere(site: dict[Path, Page]) -> None:
    away = re.compile(r"^([a-z]+:)?//", re.IGNORECASE)
    for path, page in site.items():
        assert not [url for url in page.fetched if away.match(url)], path
    folder = min(site, key=lambda path: len(path.parts)).parent
    for sheet in folder.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", text), sheet


def test_every_link_within_the_site_leads_somewhere(site: dict[Path, Page]) -> None:
    checked = 0
    for path, page in site.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            target, _, anchor = unquote(link).partition("#")
            place = (path.parent / target).resolve() if target else path
            place = place / "index.html" if place.is_dir() else place
            assert place.exists(), f"{path.name}: {link}"
            if anchor and place in site:
                assert anchor in site[place].anchors or anchor == "__skip", f"{path.name}: {link}"
            checked += 1
    assert checked > 1000


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_every_command_exists(paper: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    text = paper.read_text(encoding="utf-8")
    called = re.findall(
        r"(?:\bdlperf|-m dlperf_runner) (?:(--?)|([a-z]+(?:-[a-z]+)*\b))(?![./])", text
    )
    assert {name for _, name in called if name} <= set(commands)
    # The options that stand behind a command, up to the end of its line or code.
    for name, rest in re.findall(
        r"(?:\bdlperf|-m dlperf_runner) ([a-z]+(?:-[a-z]+)*)((?:[^`\n#|]|\\\n)*)", text
    ):
        if name in commands and not commands[name].context_settings.get("ignore_unknown_options"):
            known = {option for parameter in commands[name].params for option in parameter.opts}
            given = set(re.findall(r"(?<![\w-])--[a-z-]+", rest))
            assert given <= known | {"--help"}, f"{name}: {given - known}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|^ {4}|^)make ([a-z-]+)\b", text, re.MULTILINE):
        assert f"\n{target}:" in makefile, f"make {target}"


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_every_path_of_the_project_exists(paper: Path) -> None:
    text = paper.read_text(encoding="utf-8")
    top = "dlperf_runner|tests|roles|playbooks|inventory|library|requirements|benchmarks|docs"
    for name in set(re.findall(rf"`((?:{top})/[\w./*-]+)`", text)):
        made_by_the_reader = paper.name.startswith("adding-") or name == "inventory/mine"
        assert made_by_the_reader or list(ROOT.glob(name)), name


def test_every_message_of_the_troubleshooting_page_exists_in_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    files = [ROOT / "Makefile"]
    for folder in ("dlperf_runner", "roles", "playbooks", "library", "module_utils"):
        files += [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".yml")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(messages) > 20
    missing = {m for m in messages if any(part.strip() not in code for part in m.split("..."))}
    assert not missing


def test_the_readmes_stay_short_and_say_the_same() -> None:
    english, chinese = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")
    )
    for text in (english, chinese):
        assert len(text.splitlines()) <= 130
    tables = [re.findall(r"^\| +[\d.]+ .*$", text, re.MULTILINE) for text in (english, chinese)]
    assert len(tables[0]) == 6
    assert tables[0] == tables[1]
    linked = [set(re.findall(r"\]\((?!README)([^)]+)\)", text)) for text in (english, chinese)]
    assert linked[0] == linked[1]


def test_the_tables_of_the_published_campaign_are_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "mxnet-resnet50v1b.md"
    published_tree(Path("published"), source)
    for run in published("published_runs"):
        if run["source"] == source:
            factor = 1.001 if "4n8g" in run["log_path"] else 0.93
            rate = round(float(run["samples_per_second"]) * factor, 2)
            write(Path("slower") / run["log_path"], gluoncv(rate))
    names = ("accelerator=V100-SXM2-16GB", "data=real", "image_size=224")
    stated = [word for name in names for word in ("--condition", name)]
    printed = ""
    for arguments, status in (
        (["summarize", "published"], 0),
        (["report", "published", *stated], 0),
        (["compare", "published", *stated], 0),
        (["compare", "--save-baseline", "main", "published"], 0),
        (["compare", "--baseline", "main", "slower", "--fail-if-slower", "3%"], 1),
    ):
        printed += output(*arguments, status=status)
    printed += Path("results/published/report/report.md").read_text(encoding="utf-8")
    shown = {
        name: re.findall(
            r"^ *(\| +\d[\dng]* +\| .*)$", (ROOT / name).read_text("utf-8"), re.MULTILINE
        )
        for name in ("README.md", "docs/start-logs.md", "docs/comparing.md", "docs/reports.md")
    }
    assert [len(rows) for rows in shown.values()] == [6, 3, 12, 6]
    absent = [(name, row) for name, rows in shown.items() for row in rows if row not in printed]
    assert absent == []


# ---- paragraphs: none, nor an item of a list or a cell of a table, has more than 60 words

WORDS = 60
ITEM = re.compile(r"([-*]|\d+\.) ")


def parts(text: str) -> Iterator[str]:
    """Paragraphs, items and cells, without blocks of code."""
    lines: list[str] = []
    is_code = False
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith("```"):
            is_code = not is_code
        starts = not line.strip() or line.lstrip().startswith(("#", "|", "```")) or is_code
        if (starts or ITEM.match(line.lstrip())) and lines:
            yield " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from line.split("|")
        elif not starts and (lines or not line.startswith("    ") or ITEM.match(line.lstrip())):
            lines.append(line.strip())


@pytest.mark.parametrize("page", PAPERS[3:], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_paragraph_is_longer_than_60_words(page: Path) -> None:
    long = [part for part in parts(page.read_text(encoding="utf-8")) if len(part.split()) > WORDS]
    assert long == []


def test_the_parts_of_a_page() -> None:
    page = "# A b\n\none\ntwo\n- three\n  four\n\n    code\n\n| a | b c |\n```\nx y\n```\nfive\n"
    told = [part.strip() for part in parts(page) if part.strip()]
    assert told == ["one two", "- three four", "a", "b c", "five"]
