"""The pages of the site beyond docs/, made from other files of the project.

Links are written as they work in the repository. Here they lead to the page that the target has on
the site; a target without a page becomes plain code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# File of the project: its page.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "performance.md",
    **{
        f"roles/{path.parent.name}/README.md": f"roles/{path.parent.name}.md"
        for path in sorted(ROOT.glob("roles/*/README.md"))
    },
}
# Search shows these pages early, and those that are made from other files late.
_FIRST = {"slurm.md": 2, "gpu-nodes.md": 8, "comparing.md": 2, "columns.md": 2}
_LINK = re.compile(r"(!?)\[([^\]]+)\]\(((?!https?:|#|mailto:)[^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages that are made; roles.md lists the roles."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, "roles.md", content=_roles()))
    for source in PAGES.values():
        if source.startswith("roles/"):
            files.src_uris[source].inclusion = files.src_uris[source].inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links of the repository to pages of the site."""
    # In tables, GitHub wants a bar within code escaped, and Markdown here does not.
    markdown = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("\\|", "|"), markdown)
    origin = {made: source for source, made in PAGES.items()}
    here = page.file.src_uri
    if here in origin or here in _FIRST:
        page.meta["search"] = {"boost": _FIRST.get(here, 0.2)}
    folder = posixpath.dirname(origin.get(here, f"docs/{here}"))

    def lead(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        made = PAGES.get(path) or (path[len("docs/") :] if path.startswith("docs/") else None)
        if made is None:
            return f"`{path}`" if (ROOT / path).exists() else match[0]
        link = posixpath.relpath(made, posixpath.dirname(here) or ".")
        return f"{image}[{text}]({link}{anchor or ''})"

    return _replace_outside_code(lead, markdown) if here != "roles.md" else markdown


def _replace_outside_code(lead: Any, markdown: str) -> str:
    """Replace links, but not inside fenced blocks."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(p if p.startswith("```") else _LINK.sub(lead, p) for p in parts)


def _roles() -> str:
    """The list of roles, each with the first sentence of its README."""
    rows = []
    for source, page in PAGES.items():
        if page.startswith("roles/"):
            text = (ROOT / source).read_text("utf-8").partition("\n")[2].partition("<!--")[0]
            first = " ".join(text.strip().split("\n\n")[0].split())
            sentence = _LINK.sub(r"\2", re.split(r"(?<=\.)\s", first)[0])
            rows.append(f"| [{Path(page).stem}]({page}) | {sentence} |")
    head = "# Roles\n\nEach page has the role's variables, made from its argument specs.\n\n"
    return head + "| role | what it does |\n| --- | --- |\n" + "\n".join(rows) + "\n"
