"""Where the downloads from vendors lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlperf_runner.bundle.vendor.download import Fetcher, FetchError


@pytest.mark.parametrize("url", ["https://../x", "https://host/%2e%2e/%2e%2e/x", "/etc/passwd"])
def test_no_address_leads_out_of_the_folder(tmp_path: Path, url: str) -> None:
    with pytest.raises(FetchError, match="leads out of its folder"):
        Fetcher(tmp_path).path(url)
