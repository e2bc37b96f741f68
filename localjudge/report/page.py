"""The report's file: template, style, script and data in one file, so that nothing is fetched.

All data from rows is compressed and written in base64, so no text can end or begin a script; the page inserts
it into the document as text. A Content-Security-Policy in the file forbids all connections, and all scripts
except the page's own, which it identifies by its digest.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from localjudge.errors import UsageError
from localjudge.modes.mode import ListWords
from localjudge.report.listed_rows import ListedRows
from localjudge.report.page_row import PageRow
from localjudge.studies.calibration import IntervalsOf
from localjudge.system.durable import replacing
from localjudge.system.steps import Report, no_progress, with_progress

CHUNK = 200_000
"""Characters of text at which a chunk of rows is complete."""
_SCRIPTS = ("page_data.js", "row_view.js", "overview.js", "search.js", "reader.js")
"""The parts of the page's script, in their order; they share one scope."""


def write_page(
    out: Path,
    head: dict[str, Any],
    listed: ListedRows,
    intervals_of: IntervalsOf | None = None,
    report: Report = no_progress,
) -> None:
    """Write the report.

    Args:
        out: the file to write; an existing file is replaced when the new one is complete.
        head: the content of the page above the list.
        listed: the rows; they are written in chunks, and the page reads a chunk when it needs it.
        intervals_of: returns the intervals of an outcome's scores; None for a page without intervals.
        report: receives the number of rows that were written.

    Raises:
        UsageError: the file cannot be written.
    """
    script = page_script()
    words = _words(listed.mode.list_words)
    begin, end = _template(head["title"], script, words=words)
    arrays = listed.columns.typed_arrays()
    page_rows = with_progress(listed.page_rows(intervals_of), report, total=len(listed))
    chunk_sizes: list[list[int]] = []
    try:
        with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as stream:
            stream.write(begin)
            for name, array in arrays.items():
                stream.write(_element(name, array.content))
            for number, chunk in enumerate(_chunks(page_rows)):
                stream.write(_json_element(f"chunk-{number}", chunk.document))
                chunk_sizes.append([len(chunk.instructions), len(chunk.rows)])
            # The head is written last because the number of chunks is known only then. The order does not
            # matter: the script runs after the browser has read the whole file.
            lists = {
                "ids": listed.ids,
                "snippets": listed.snippets,
                "chunks": chunk_sizes,
                "words": words,
                "arrays": {name: array.kind for name, array in arrays.items()},
            }
            stream.write(_json_element("head", head | lists))
            stream.write(f"<script>{script}</script>\n")
            stream.write(end)
    except OSError as error:
        raise UsageError(f"`out` {out}: {error.strerror}") from None


def _words(list_words: ListWords) -> dict[str, str]:
    """Return the words of the list, by their names in the template and the script."""
    return {
        "one": list_words.one,
        "many": list_words.many,
        "Many": list_words.many.capitalize(),
        "result": list_words.answer,
    }


def _template(title: str, script: str, words: Mapping[str, str]) -> tuple[str, str]:
    """Return the text of the file before its data and its script, and the text after them."""
    policy = (
        "default-src 'none'; "
        f"script-src '{_digest(script)}'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    text = Template(_asset("template.html")).substitute(
        words,
        policy=html.escape(policy),
        title=html.escape(title),
        style=_asset("style.css"),
        data="\0",
    )
    begin, end = text.split("\0")
    return begin, end


@dataclass(slots=True)
class _Chunk:
    """The rows of some instructions, which the page reads together.

    Attributes:
        instructions: the text and the reference of each instruction; None for one that was not found.
        rows: what the view of each row shows.
        characters: about how many characters their texts have.
    """

    instructions: list[list[str | None]] = field(default_factory=list)
    rows: list[Sequence[Any]] = field(default_factory=list)
    characters: int = 0

    def add(self, rows: Sequence[PageRow]) -> None:
        """Add all rows of an instruction."""
        instruction = None
        reference = None
        texts = [row.text for row in rows if row.text is not None]
        if texts:
            instruction = texts[0].instruction
            reference = texts[0].reference
        self.instructions.append([instruction, reference])
        self.rows += [row.values for row in rows]
        self.characters += len(instruction or "") + len(reference or "")
        self.characters += sum(row.characters for row in rows)

    @property
    def document(self) -> dict[str, Any]:
        """The chunk as the page reads it."""
        return {"instructions": self.instructions, "rows": self.rows}


def _chunks(page_rows: Iterable[PageRow]) -> Iterator[_Chunk]:
    """Yield chunks of about `CHUNK` characters; all rows of an instruction are in one chunk."""
    chunk = _Chunk()
    for _, rows in groupby(page_rows, key=lambda row: row.instruction):
        if chunk.characters >= CHUNK:
            yield chunk
            chunk = _Chunk()
        chunk.add(list(rows))
    if chunk.rows:
        yield chunk


def _json_element(name: str, document: Mapping[str, Any]) -> str:
    """Return the element of the page with this document."""
    return _element(name, json.dumps(document).encode())


def _element(name: str, content: bytes) -> str:
    """Return the element of the page with these bytes, compressed."""
    packed = base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()
    return f'<script type="application/gzip" id="data-{name}">{packed}</script>\n'


def _asset(name: str) -> str:
    """Return the text of a file beside this module."""
    return (files("localjudge") / "report" / name).read_text(encoding="utf-8")


def page_script() -> str:
    """Return the page's own script."""
    parts = "\n".join(_asset(name) for name in _SCRIPTS)
    return f'"use strict";\n(async () => {{\n{parts}}})();\n'


def _digest(script: str) -> str:
    """Return the digest of a script, as a Content-Security-Policy has it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
