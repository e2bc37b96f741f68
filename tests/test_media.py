"""Images, sound and video in columns that no field reads fail their row; texts do not."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from one_row import as_row

from localjudge import Failure, Row

USED = ("instruction", "candidate")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(40)).decode()
WAVE = base64.b64encode(b"RIFF" + bytes(4) + b"WAVEfmt " + bytes(40)).decode()
MP4 = base64.b64encode(bytes(3) + b"\x18ftypisom" + bytes(40)).decode()


def outcome(**columns: Any) -> Row | Failure:
    return as_row({"question": "What is shown?", "response": "A cat."} | columns, "a:1", {}, USED)


@pytest.mark.parametrize("name", ["image", "screenshot", "Anything"])
@pytest.mark.parametrize(
    "value", [PNG, JPEG, WAVE, MP4, f"data:image/png;base64,{PNG}", "data:audio/wav;base64,UklG", [PNG]]
)
def test_an_encoded_medium_fails_the_row_under_any_name(name: str, value: Any) -> None:
    failure = outcome(**{name: value})
    assert isinstance(failure, Failure)
    assert name in failure.reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_media", ["code_reasoning/0020.png"]),
        ("image_url", ["https://example.org/1.jpg?size=2"]),
        ("Image", ["images/1.jpg"]),
        ("image", "images/1.JPG"),
        ("videos", ["a.mp4"]),
        ("audio", {"path": "a", "array": [0.1]}),
        ("img", b"\x89PNG"),
    ],
)
def test_a_path_an_address_bytes_or_an_object_fails_the_row_under_the_name_of_a_medium(
    name: str, value: Any
) -> None:
    assert isinstance(outcome(**{name: value}), Failure)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image", "a cat on a mat"),
        ("image", []),
        ("image", ""),
        ("images", None),
        ("file", "images/1.jpg"),
        ("note", "/9j/ is how a JPEG begins in base64"),
        ("data", "data: two rows"),
    ],
)
def test_a_description_and_other_texts_are_kept(name: str, value: Any) -> None:
    assert isinstance(outcome(**{name: value}), Row)


def test_a_text_in_a_field_is_never_tested() -> None:
    row = as_row({"question": f"data:image/png;base64,{PNG}", "response": PNG}, "a:1", {}, USED)
    assert isinstance(row, Row)
    assert row.candidate == PNG
