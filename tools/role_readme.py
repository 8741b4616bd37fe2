"""`make docs`: the table of variables in each role's README, out of its meta/argument_specs.yml.

What stands above the marker is written by hand and stays.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[1]
ROLES = sorted(path.parents[1] for path in PROJECT.glob("roles/*/meta/argument_specs.yml"))
BEGIN = "<!-- Made by `make docs` of meta/argument_specs.yml; text goes above. -->\n"
END = "<!-- End of what is made. -->\n"


def cell(text: Any) -> str:
    """Text of a table's cell; Ansible's markup V(x), C(x), E(x) becomes code."""
    if isinstance(text, list):
        text = " ".join(str(line) for line in text)
    text = re.sub(r"\b[VCEO]\(([^)]*)\)", r"`\1`", str(text))
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def kind(option: dict[str, Any]) -> str:
    elements = f" of {option['elements']}" if "elements" in option else ""
    return f"{option.get('type', 'str')}{elements}"


def default(name: str, option: dict[str, Any], defaults: dict[str, Any]) -> str:
    """Its value; one that is computed stands in defaults/main.yml alone."""
    if option.get("required"):
        return "required"
    value = option.get("default", defaults.get(name))
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return f"`{cell(text)}`"


def section(role: Path) -> str:
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    path = role / "defaults/main.yml"
    defaults = yaml.safe_load(path.read_text()) or {} if path.exists() else {}
    rows = []
    for entry in spec.values():
        for name, option in (entry.get("options") or {}).items():
            choices = option.get("choices")
            which = f" One of {', '.join(f'`{item}`' for item in choices)}." if choices else ""
            says = cell(option["description"]) + which
            rows.append(
                f"| `{name}` | {kind(option)} | {default(name, option, defaults)} | {says} |\n"
            )
    head = "| Variable | Type | Default | |\n| --- | --- | --- | --- |\n"
    return BEGIN + "\n" + head + "".join(dict.fromkeys(rows)) + "\n" + END


def readme(role: Path) -> str:
    """The README as it shall be: the text by hand, then the section."""
    path = role / "README.md"
    text = path.read_text() if path.exists() else f"# {role.name}\n"
    return text.partition(BEGIN)[0].rstrip() + "\n\n" + section(role)


def main() -> None:
    for role in ROLES:
        text = readme(role)
        if not (role / "README.md").exists() or (role / "README.md").read_text() != text:
            (role / "README.md").write_text(text)
            sys.stdout.write(f"{role.name}/README.md\n")


if __name__ == "__main__":
    main()
