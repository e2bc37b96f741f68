"""The conditions of a gate as JUnit XML, which the pages of CI jobs read."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from localjudge.report.gate_lines import condition_name, reason
from localjudge.studies.conditions import Condition


def as_junit(conditions: Sequence[Condition], name: str, *, answer: str) -> str:
    """Return a test case for each condition, as JUnit XML.

    Args:
        conditions: the conditions.
        name: the name of the suite.
        answer: what the comparison says, for the conditions that fail.
    """
    failed = sum(not condition.passes for condition in conditions)
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(conditions)), failures=str(failed))
    for condition in conditions:
        attributes = {"classname": "localjudge.compare", "name": condition_name(condition)}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if condition.passes:
            ElementTree.SubElement(case, "system-out").text = reason(condition)
        else:
            ElementTree.SubElement(case, "failure", message=reason(condition)).text = answer
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
