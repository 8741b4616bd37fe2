"""A comparison as JUnit's XML, which CI servers show: one test per case."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..compare.verdicts import ALONE, FAILED, NOT_COMPARABLE, TOO_FEW, UNDECIDED
from ..core.identity import topology_text
from ..core.printable import for_xml
from .numbers import percent, rate_decimals, ratio

Result = Literal["passed", "failure", "error", "skipped"]
NOT_COMPARED = {NOT_COMPARABLE, *ALONE}


@dataclass(frozen=True)
class JUnitCase:
    """A case: `failure` is a case that is slower, `error` one that could not be decided, `skipped`
    one that is not compared; `message` says why, `properties` are its numbers."""

    name: str
    classname: str
    result: Result
    message: str
    properties: Mapping[str, Any]


NUMBERS = (
    *("a", "b", "n_a", "n_b", "relative", "relative_low", "relative_high", "at_worst"),
    *("mine", "repeats", "published", "ratio", "ratio_low", "ratio_high"),
    *("verdict", "limit", "environment", "apart", "factors", "noted", "unknown", "declared"),
    *("stated", "stated_a", "stated_b", "assumed"),
    "published_title",
)


def junit_cases(
    cases: Sequence[Mapping[str, Any]], allow_undecided: bool = False
) -> list[JUnitCase]:
    """The cases of a comparison as tests. Without a limit none fails; what is not compared is
    skipped, and with `allow_undecided` what could not be decided is, too."""
    return [_test(case, *_result(case, allow_undecided)) for case in cases]


def _test(case: Mapping[str, Any], result: Result, message: str) -> JUnitCase:
    name = f"{case['precision']} b{case['batch_size_per_device']} {topology_text(case)}"
    return JUnitCase(
        ", ".join(filter(None, (name, case.get("distinction")))),
        ".".join(str(case[key]) for key in ("workload", "model", "source") if case[key]),
        result,
        message,
        {name: case[name] for name in NUMBERS if name in case},
    )


def _result(case: Mapping[str, Any], allow_undecided: bool) -> tuple[Result, str]:
    verdict, why = case["limit_verdict"], case["why"] or case["verdict"]
    if verdict == FAILED:
        return "failure", f"slower by more than {case['limit']:.1%}: {_measured(case)}"
    if verdict == TOO_FEW:
        return "error", str(why)
    if verdict == UNDECIDED:
        return ("skipped" if allow_undecided else "error"), str(why)
    compared = case["verdict"] not in NOT_COMPARED
    return ("passed", "") if verdict or compared else ("skipped", str(case["verdict"]))


def _measured(case: Mapping[str, Any]) -> str:
    """-7.0% (-7.3% to -6.7%), 384.19 before and 357.30 now, n = 5 and 5"""
    if "ratio" in case:
        interval = _interval(case["ratio_low"], case["ratio_high"], ratio)
        sides = f"{case['published']:.2f} published and {_rate(case, 'mine')} now"
        return f"ratio {ratio(case['ratio'])}{interval}, {sides}, n = {case['repeats']}"
    interval = _interval(case["relative_low"], case["relative_high"], percent)
    sides = f"{_rate(case, 'a')} before and {_rate(case, 'b')} now"
    numbers = f"{sides}, n = {case['n_a']} and {case['n_b']}"
    return f"{percent(case['relative'])}{interval}, {numbers}"


def _rate(case: Mapping[str, Any], column: str) -> str:
    return f"{case[column]:.{rate_decimals(case['workload'], [case[column]])}f}"


def _interval(low: float | None, high: float | None, form: Callable[[float], str]) -> str:
    return "" if low is None or high is None else f" ({form(low)} to {form(high)})"


def render(suite: str, tests: Sequence[JUnitCase]) -> str:
    """The whole document; what is in it is escaped, and what XML cannot hold left out."""
    count = Counter(test.result for test in tests)
    attributes = {
        "name": for_xml(suite),
        "tests": str(len(tests)),
        "failures": str(count["failure"]),
        "errors": str(count["error"]),
        "skipped": str(count["skipped"]),
        "time": "0",
    }
    root = ET.Element("testsuites", {k: v for k, v in attributes.items() if k != "skipped"})
    element = ET.SubElement(root, "testsuite", attributes)
    for test in tests:
        names = {"name": for_xml(test.name), "classname": for_xml(test.classname), "time": "0"}
        case = ET.SubElement(element, "testcase", names)
        known = {key: value for key, value in test.properties.items() if value is not None}
        if known:
            properties = ET.SubElement(case, "properties")
            for key, value in known.items():
                pair = {"name": for_xml(key), "value": for_xml(str(value))}
                ET.SubElement(properties, "property", pair)
        if test.result != "passed":
            message = {"message": for_xml(test.message)}
            if test.result != "skipped":
                message["type"] = "slower" if test.result == "failure" else "undecided"
            ET.SubElement(case, test.result, message)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
