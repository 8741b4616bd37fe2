"""docs/img/report.png: the report's first screen, made from published speeds (docs/testing.md).

Run `python tests/browser/report_picture.py` after the report's looks have changed.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from make_logs import published_tree  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

from dlperf_runner.commands.report import make_report  # noqa: E402

PICTURE = ROOT / "docs" / "img" / "report.png"
SIZE = {"width": 1400, "height": 1100}
CONDITIONS = ("accelerator=V100-SXM2-16GB", "data=real", "image_size=224")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        logs = Path(folder) / "mxnet-resnet50v1b"
        published_tree(logs, "mxnet-resnet50v1b.md")
        make_report([logs], Path(folder), conditions=CONDITIONS)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.goto((Path(folder) / "report.html").as_uri())
        results = page.get_by_role("heading", name="Results", exact=True).bounding_box()
        assert results
        clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": results["y"] - 20}
        shot = Image.open(io.BytesIO(page.screenshot(clip=clip)))  # type: ignore[arg-type]
        browser.close()
    shot.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
