"""The report's file: template, style, script, chart library and data in one file, so that nothing is fetched.

All data from rows is compressed and written in base64, so no text can end or begin a script; the page inserts
it into the document as text. A Content-Security-Policy in the file forbids all connections, and all scripts
except the page's own two, which it identifies by their digests.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any, Protocol

from localjudge.errors import UsageError
from localjudge.modes.mode import Mode
from localjudge.runs.reread_texts import RowTexts
from localjudge.system.durable import replacing
from localjudge.system.steps import Report, no_progress, with_progress

CHUNK = 200_000
"""Characters of text at which a chunk of rows is complete."""
_SCRIPTS = ("page_data.js", "row_view.js", "overview.js", "search.js", "reader.js")
"""The parts of the page's script, in their order; they share one scope."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row as the page reads it.

    Attributes:
        instruction: the number of its instruction.
        text: the texts of its row, if they were found.
        values: what its view shows.
        characters: about how many characters its texts have.
    """

    instruction: int
    text: RowTexts | None
    values: Sequence[Any]
    characters: int


class PageContent(Protocol):
    """What a page lists. All rows of an instruction stand together.

    Attributes:
        kind: the mode of the rows, which has the words of the template.
        ids: the id of each row.
        snippets: the beginning of each instruction.
    """

    kind: Mode[Any]
    snippets: list[str]

    @property
    def ids(self) -> list[str]: ...

    def arrays(self) -> Mapping[str, tuple[str, bytes]]:
        """Return the columns of numbers: the name of the page's typed array, and its bytes, little-endian."""
        ...

    def page_rows(self) -> Iterable[PageRow]:
        """Yield the rows in the order of the columns."""
        ...


def write_page(
    out: Path, title: str, head: dict[str, Any], content: PageContent, report: Report = no_progress
) -> None:
    """Write the report.

    Args:
        out: the file to write; an existing file is replaced when the new one is complete.
        title: the title of the document.
        head: the content of the page above the list.
        content: the content of the list; it is written in chunks, and the page reads a chunk when it needs it.
        report: receives the number of rows that were written.

    Raises:
        UsageError: the file cannot be written.
    """
    library, script = chart_library(), page_script()
    policy = (
        "default-src 'none'; "
        f"script-src '{_digest(script)}' '{_digest(library)}'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    one, many, result = content.kind.listed
    words = {"one": one, "many": many, "Many": many.capitalize(), "result": result}
    begin, end = Template(_asset("template.html")).substitute(
        policy=html.escape(policy), title=html.escape(title), style=_asset("style.css"), data="\0", **words
    ).split("\0")  # fmt: skip
    chunks, arrays = _Chunks(content, report), content.arrays()
    try:
        with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as stream:
            stream.write(begin)
            stream.write(_data("library", library.encode()))
            for name, (_, numbers) in arrays.items():
                stream.write(_data(name, numbers))
            about = {
                **head,
                "words": words,
                "arrays": {name: kind for name, (kind, _) in arrays.items()},
                "ids": content.ids,
                "snippets": content.snippets,
                "chunks": chunks.sizes,
            }
            # The head is written last because the number of chunks is known only then. The order does not
            # matter: the script runs after the browser has read the whole file.
            for number, chunk in enumerate(chunks):
                stream.write(_data(f"chunk-{number}", chunk))
            stream.write(_data("head", json.dumps(about).encode()))
            stream.write(f"<script>{script}</script>\n")
            stream.write(end)
    except OSError as error:
        raise UsageError(f"`out` {out}: {error.strerror}") from None


class _Chunks:
    """The rows in chunks of about `CHUNK` characters; all rows of an instruction are in one chunk.

    A chunk is `{"instructions": [[instruction, reference] …], "rows": [[…] …]}`. Missing values are null.
    """

    def __init__(self, content: PageContent, report: Report) -> None:
        self._content, self._report = content, report
        self.sizes: list[list[int]] = []

    def __iter__(self) -> Iterator[bytes]:
        """Yield each chunk, and append its numbers of instructions and rows to `sizes`."""
        instructions: list[Any] = []
        rows: list[Any] = []
        size = 0
        page_rows = with_progress(self._content.page_rows(), self._report, len(self._content.ids))
        for _, together in groupby(page_rows, key=lambda row: row.instruction):
            if size >= CHUNK:
                yield self._close(instructions, rows)
                instructions, rows, size = [], [], 0
            known: RowTexts | None = None
            for row in together:
                known = known or row.text
                rows.append(row.values)
                size += row.characters
            instructions.append([known.instruction, known.reference] if known else [None, None])
            size += len(known.instruction) + len(known.reference or "") if known else 0
        if rows:
            yield self._close(instructions, rows)

    def _close(self, instructions: list[Any], rows: list[Any]) -> bytes:
        self.sizes.append([len(instructions), len(rows)])
        return json.dumps({"instructions": instructions, "rows": rows}).encode()


def _data(name: str, content: bytes) -> str:
    packed = base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()
    return f'<script type="application/gzip" id="data-{name}">{packed}</script>\n'


def _asset(name: str) -> str:
    return (files("localjudge") / "report" / name).read_text(encoding="utf-8")


def page_script() -> str:
    """Return the page's own script."""
    return '"use strict";\n(async () => {\n' + "\n".join(map(_asset, _SCRIPTS)) + "})();\n"


@cache
def chart_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
