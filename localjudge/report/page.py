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
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from localjudge.errors import UsageError
from localjudge.report.listed_rows import ListedRows, PageRow
from localjudge.system.durable import replacing
from localjudge.system.steps import Report, no_progress, with_progress

CHUNK = 200_000
"""Characters of text at which a chunk of rows is complete."""
_SCRIPTS = ("page_data.js", "row_view.js", "overview.js", "search.js", "reader.js")
"""The parts of the page's script, in their order; they share one scope."""


def write_page(out: Path, head: dict[str, Any], listed: ListedRows, report: Report = no_progress) -> None:
    """Write the report.

    Args:
        out: the file to write; an existing file is replaced when the new one is complete.
        head: the content of the page above the list.
        listed: the rows; they are written in chunks, and the page reads a chunk when it needs it.
        report: receives the number of rows that were written.

    Raises:
        UsageError: the file cannot be written.
    """
    script = page_script()
    policy = (
        "default-src 'none'; "
        f"script-src '{_digest(script)}'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    list_words = listed.mode.list_words
    words = {
        "one": list_words.one,
        "many": list_words.many,
        "Many": list_words.many.capitalize(),
        "result": list_words.answer,
    }
    page = Template(_asset("template.html")).substitute(
        policy=html.escape(policy),
        title=html.escape(head["title"]),
        style=_asset("style.css"),
        data="\0",
        **words,
    )
    begin, end = page.split("\0")
    arrays, sizes = listed.arrays(), []
    try:
        with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as stream:
            stream.write(begin)
            for name, (_, numbers) in arrays.items():
                stream.write(_data(name, numbers))
            page_rows = with_progress(listed.page_rows(), report, len(listed))
            for number, (instructions, rows) in enumerate(_chunks(page_rows)):
                sizes.append([len(instructions), len(rows)])
                chunk = json.dumps({"instructions": instructions, "rows": rows})
                stream.write(_data(f"chunk-{number}", chunk.encode()))
            kinds = {name: kind for name, (kind, _) in arrays.items()}
            lists = {"ids": listed.ids, "snippets": listed.snippets, "chunks": sizes}
            # The head is written last because the number of chunks is known only then. The order does not
            # matter: the script runs after the browser has read the whole file.
            stream.write(_data("head", json.dumps(head | lists | {"words": words, "arrays": kinds}).encode()))
            stream.write(f"<script>{script}</script>\n")
            stream.write(end)
    except OSError as error:
        raise UsageError(f"`out` {out}: {error.strerror}") from None


def _chunks(page_rows: Iterable[PageRow]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the instructions, each with its reference, and the rows of each chunk of about `CHUNK` characters.

    All rows of an instruction are in one chunk. Missing values are None.
    """
    instructions, rows, size = list[Any](), list[Any](), 0
    for _, together in groupby(page_rows, key=lambda row: row.instruction):
        if size >= CHUNK:
            yield instructions, rows
            instructions, rows, size = [], [], 0
        of_one = [*together]
        text = next((row.text for row in of_one if row.text), None)
        said = [text.instruction, text.reference] if text else [None, None]
        instructions.append(said)
        rows += [row.values for row in of_one]
        size += sum(len(each or "") for each in said) + sum(row.characters for row in of_one)
    if rows:
        yield instructions, rows


def _data(name: str, content: bytes) -> str:
    packed = base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()
    return f'<script type="application/gzip" id="data-{name}">{packed}</script>\n'


def _asset(name: str) -> str:
    return (files("localjudge") / "report" / name).read_text(encoding="utf-8")


def page_script() -> str:
    """Return the page's own script."""
    return '"use strict";\n(async () => {\n' + "\n".join(map(_asset, _SCRIPTS)) + "})();\n"


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
