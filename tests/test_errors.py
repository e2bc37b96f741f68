"""Tests of what is said of another library's error."""

from __future__ import annotations

import pytest

from localjudge.errors import in_one_line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such file"), "no such file"),
        (
            ValueError("Cannot load the model:\n\n  it has no layers\n"),
            "Cannot load the model: … it has no layers",
        ),
        (ValueError("the same\nthe same"), "the same"),
        (
            ValueError("1 validation error\n  no such type\n    For further information visit https://errors"),
            "1 validation error … no such type",
        ),
        (KeyError(), "KeyError"),
        (ValueError("  \n"), "ValueError"),
    ],
)
def test_an_error_of_several_lines_keeps_its_first_and_its_last(error: Exception, said: str) -> None:
    assert in_one_line(error) == said


def test_a_long_line_is_cut() -> None:
    assert len(in_one_line(ValueError("word " * 1000))) == 300
