"""The page of a running campaign in a browser."""

import json
import shutil
from pathlib import Path

from playwright.sync_api import Browser, expect
from report_examples import IMAGE, mxnet_campaign

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.core.files import write_json
from dlperf_runner.live import command as live


def running_campaign(directory: Path) -> Path:
    """A made campaign with a plan, whose last run has just begun."""
    mxnet_campaign(directory, planted=True)
    records = [json.loads(path.read_text()) for path in sorted(directory.glob("runs/*/*/run.json"))]
    write_json(directory / "plan.json", {"schema": 1, "choice": {}, "runs": records})
    place = campaigns.run_directory(directory, records[-1])
    records[-1]["outcome"] |= {"status": "running"}
    write_json(place / "run.json", records[-1])
    return directory


def test_the_page_follows_the_files(browser: Browser, tmp_path: Path) -> None:
    directory = running_campaign(tmp_path / "c")
    last = sorted(directory.glob("runs/*/*/run.json"))[-1].parent
    context = browser.new_context()
    page = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    with live.serve_page(directory) as url:
        page.goto(url)
        expect(page.locator("#count")).to_have_text("29 of 31 runs done")
        expect(page.locator("td.running")).to_have_count(1)
        # What a node says is text.
        expect(page.locator("td", has_text=IMAGE)).to_have_count(1)
        expect(page).to_have_title("29/31 c")
        for rate in (9000.0, 9500.0):
            tail = f"INFO:root:Epoch[0] Batch[7]\tSpeed: {rate} samples/sec\n"
            (last / "progress.json").write_text(json.dumps({"tail": tail}))
            expect(page.locator("tr", has=page.locator("td.running"))).to_contain_text(
                str(int(rate)), timeout=10_000
            )
        expect(page.locator("#range")).to_contain_text("9000 to 9500 samples/s", timeout=10_000)
        assert page.locator("#series").get_attribute("points")
        assert errors == []
        assert {request.startswith(url) for request in requests} == {True}
        screens = Path(__file__).parents[2] / ".cache" / "report-screenshots"
        screens.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=screens / "live.png", full_page=True)
    expect(page.locator("#lost")).to_contain_text("its last state", timeout=10_000)
    context.close()
    shutil.rmtree(directory)
