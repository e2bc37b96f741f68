"""Find images, sound and video in columns that no field reads: only text is judged."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from localjudge.rows.columns import folded

_NAMES = frozenset({
    "image", "images", "img", "imgs", "audio", "audios", "video", "videos", "media",
    "input_media", "input_medias", "image_url", "image_urls", "image_path", "image_paths",
})  # fmt: skip
"""Columns in which a path, an address, bytes or an object is a medium."""
_SUFFIX = re.compile(
    r"\.(png|jpe?g|gif|webp|bmp|tiff?|svg|avif|heic|mp3|wav|flac|ogg|opus|m4a|aac|mp4|m4v|mov|avi|webm|mkv)"
    r"([?#].*)?$",
    re.IGNORECASE,
)
_DATA_URI = re.compile(r"data:(image|audio|video)/[\w.+-]+[;,]", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16}")
_HEADERS = (
    b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*", b"OggS", b"ID3", b"fLaC",
    b"\x1aE\xdf\xa3",
)  # fmt: skip
_RIFF = (b"WEBP", b"WAVE", b"AVI ")
_FIRST_CHARACTERS = frozenset(
    base64.b64encode(header[:3])[:1].decode() for header in (*_HEADERS, b"RIFF", b"\x00\x00\x00")
)


def media_column(columns: Mapping[str, Any]) -> str | None:
    """Return the first of these columns that has an image, sound or a video; None without one."""
    for name, value in columns.items():
        if not isinstance(value, bool | int | float | None) and _has_media(name, value):
            return name
    return None


def _has_media(name: str, value: Any) -> bool:
    if any(_is_encoded_medium(text) for text in _texts(value)):
        return True
    if not isinstance(name, str) or folded(name) not in _NAMES:
        return False
    if isinstance(value, str):
        return _SUFFIX.search(value.strip()) is not None
    if isinstance(value, list):
        return any(_has_media(name, each) for each in value)
    if isinstance(value, Mapping):
        return any(each is not None for each in value.values())
    return not isinstance(value, bool | int | float | None)


def _texts(value: Any) -> Iterator[str]:
    """Yield a text, or the texts of a list or an object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | Mapping):
        for each in value.values() if isinstance(value, Mapping) else value:
            if isinstance(each, str | list | Mapping):
                yield from _texts(each)


def _is_encoded_medium(text: str) -> bool:
    """Return whether a text is a data URI, or base64 that begins as a known format."""
    text = text[:64].lstrip()
    if text[:5].casefold() == "data:":
        return _DATA_URI.match(text) is not None
    if text[:1] not in _FIRST_CHARACTERS or not _BASE64.match(text):
        return False
    try:
        head = base64.b64decode(text[:16])
    except (binascii.Error, ValueError):
        return False
    is_container = head[:4] == b"RIFF" and head[8:12] in _RIFF
    return is_container or head[4:8] == b"ftyp" or head.startswith(_HEADERS)
