"""Check that each cited file of a publication, at the cited commit, contains the published numbers.

    python -m tools.check_citations Oneflow-Inc/DLPerf=DLPerf.git ...

Each argument is a repository and a local clone of it. In a file that has rows of tables (with `|`),
a number must stand in one, or in a line of a log that the file quotes; the values of single runs
may stand anywhere in the file. Of numbers that were computed, only the files are looked for.
Repositories without a clone are listed and not checked. The exit status is 1 if a number was not
found.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from dlperf_runner.catalog.publication import Citation
from dlperf_runner.catalog.published_numbers import PublishedNumber, load_published
from dlperf_runner.logs import formats

# 384.19, 909 (before " img/s"), 1,236.90; not the 8 of "n8g" and not the 1.5 of "v1.5".
NUMBER = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:(?=GBps)|(?![\w.]*\w))")
# 13077565,MI250,2024.01,dc-mi200,54.71: commas between values, none in a number.
VALUES = re.compile(r"^[ \t]*[^\s,]*(?:,[^\s,]*){4,}$", re.MULTILINE)


def numbers_in(text: str) -> set[Decimal]:
    text = VALUES.sub(lambda line: line[0].replace(",", " "), text)
    return {Decimal(match.replace(",", "")) for match in NUMBER.findall(text)}


def is_of_log(line: str) -> bool:
    """True if a training program printed the line, with a rate."""
    data = f"{line}\n".encode()
    return any(form.entry.findall(data) for form in formats().values() if form.marker in data)


@cache
def cited_text(clone: Path, citation: Citation) -> str | None:
    """The cited file at the cited commit, or all files that its name stands for; None if the clone
    has none."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(clone), *arguments]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        return None if done.returncode else done.stdout.decode("utf-8", "replace")

    name = citation.file or ""
    if "*" not in name:
        return git("show", f"{citation.commit}:{name}")
    folder = name.rpartition("/")[0]
    names = git("ls-tree", "--name-only", f"{citation.commit}:{folder}") or ""
    paths = (path for path in names.split() if fnmatch(f"{folder}/{path}", name))
    return (
        "\n".join(git("show", f"{citation.commit}:{folder}/{path}") or "" for path in paths) or None
    )


def not_found(number: PublishedNumber, text: str | None) -> list[float]:
    """The values of a published number that the text does not contain."""
    if text is None:
        return [number.stated, *number.runs]
    if number.citation.computed:
        return []
    anywhere = numbers_in(text)
    of_tables = "\n".join(line for line in text.splitlines() if "|" in line or is_of_log(line))
    # A bandwidth stands in the output of nccl-tests.
    rows = numbers_in(of_tables) if of_tables and number.unit != "GB" else anywhere
    in_rows = (number.stated, number.gpu_memory_mib)
    missing = [v for v in in_rows if v is not None and Decimal(repr(v)) not in rows]
    return [*missing, *(v for v in number.runs if Decimal(repr(v)) not in anywhere)]


def differences(
    numbers: Sequence[PublishedNumber], clones: Mapping[str, Path], held: Counter[str]
) -> Iterator[str]:
    """A sentence for each number that its citation does not contain. `held` counts the others."""
    for number in numbers:
        repository = number.citation.repository or ""
        if repository not in clones:
            continue
        text = cited_text(clones[repository], number.citation)
        missing = not_found(number, text)
        held[repository] += not missing
        if missing:
            case = f"{number.model} {number.precision} b{number.batch_size_per_device}"
            why = "no such file at this commit" if text is None else f"no {missing}"
            yield f"{number.report}: {case} {number.topology}: {number.source}: {why}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clones", nargs="+", metavar="OWNER/NAME=DIR")
    given = [text.partition("=") for text in parser.parse_args().clones]
    clones = {repository: Path(path) for repository, _, path in given}
    numbers, held = load_published(), Counter[str]()
    sentences = list(differences(numbers, clones, held))
    cited = Counter(number.citation.repository or "no repository" for number in numbers)
    for sentence in sentences:
        print(sentence)
    for repository, count in cited.items():
        print(f"{repository}: ", end="")
        print(f"{held[repository]} of {count}" if repository in clones else f"{count} not checked")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
