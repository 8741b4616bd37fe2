"""Modules are named as Ansible's checklist says: `_facts` return ansible_facts, `_info` do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

MODULES = sorted((Path(__file__).parents[2] / "library").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_gives_facts_where_its_name_says_so(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    blocks = dict(re.findall(r'^([A-Z]+) = r?"""(.*?)"""', text, re.MULTILINE | re.DOTALL))
    assert yaml.safe_load(blocks["DOCUMENTATION"])["module"] == path.stem
    returned = yaml.safe_load(blocks.get("RETURN", "{}"))
    assert ("ansible_facts" in (returned or {})) == path.stem.endswith("_facts")
    assert ("ansible_facts" in text.partition("def main")[2]) == path.stem.endswith("_facts")
    if path.stem.endswith(("_facts", "_info")):
        assert "changed=False" in text
        assert "supports_check_mode=True" in text
