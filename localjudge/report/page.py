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
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.errors import UsageError
from localjudge.outcome_columns import RATIONALE, rationale_of
from localjudge.records import Judgement, Outcome
from localjudge.report.judgements import Judgements
from localjudge.runs.reread_texts import Text
from localjudge.system.durable import replacing

CHUNK = 200_000
"""Characters of text at which a chunk of judgements is complete."""
SCRIPTS = ("judgements.js", "overview.js", "search.js", "reader.js")
"""The parts of the page's script, in their order; they share one scope."""


def write_page(out: Path, title: str, head: dict[str, Any], judgements: Judgements) -> None:
    """Write the report.

    Args:
        out: the file to write; an existing file is replaced when the new one is complete.
        title: the title of the document.
        head: the content of the page besides the judgements.
        judgements: the judgements; they are written in chunks, and the page reads a chunk when it needs it.

    Raises:
        UsageError: the file cannot be written.
    """
    library, script = chart_library(), page_script()
    policy = (
        "default-src 'none'; "
        f"script-src '{_digest(script)}' '{_digest(library)}'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    begin, end = Template(_asset("template.html")).substitute(
        policy=html.escape(policy), title=html.escape(title), style=_asset("style.css"), data="\0"
    ).split("\0")  # fmt: skip
    chunks = _Chunks(judgements)
    try:
        with replacing(out) as scratch, scratch.open("w", encoding="utf-8") as stream:
            stream.write(begin)
            stream.write(_data("library", library.encode()))
            for name, numbers in _numbers(judgements).items():
                stream.write(_data(name, numbers))
            about = {**head, "ids": judgements.ids, "snippets": judgements.snippets, "chunks": chunks.sizes}
            # The head is written last because the number of chunks is known only then. The order does not
            # matter: the script runs after the browser has read the whole file.
            for number, chunk in enumerate(chunks):
                stream.write(_data(f"chunk-{number}", chunk))
            stream.write(_data("head", json.dumps(about).encode()))
            stream.write(f"<script>{script}</script>\n")
            stream.write(end)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None


class _Chunks:
    """The judgements in chunks of about `CHUNK` characters; all rows of an instruction are in one chunk.

    A chunk is `{"instructions": [[instruction, reference] …], "rows": [[…] …]}`. A row has its candidate,
    rationale, error, thoughts, probabilities by aspect, source, the number of characters cut from the
    candidate, its columns, and rationales by aspect. What a row lacks is null.
    """

    def __init__(self, judgements: Judgements) -> None:
        self._judgements = judgements
        self.sizes: list[list[int]] = []

    def __iter__(self) -> Iterator[bytes]:
        """Yield each chunk, and append its numbers of instructions and rows to `sizes`."""
        instructions: list[Any] = []
        rows: list[Any] = []
        size = 0
        of_instruction = self._judgements.columns.group.tolist()
        for _, together in groupby(
            zip(of_instruction, self._judgements, strict=True), key=lambda item: item[0]
        ):
            if size >= CHUNK:
                yield self._close(instructions, rows)
                instructions, rows, size = [], [], 0
            known: Text | None = None
            for _, (outcome, text) in together:
                known = known or text
                rows.append(_row(outcome, text))
                rationale = outcome.rationale if isinstance(outcome, Judgement) else ""
                size += len(rationale) + len(text.candidate if text else "")
            instructions.append([known.instruction, known.reference] if known else [None, None])
            size += len(known.instruction) + len(known.reference or "") if known else 0
        if rows:
            yield self._close(instructions, rows)

    def _close(self, instructions: list[Any], rows: list[Any]) -> bytes:
        self.sizes.append([len(instructions), len(rows)])
        return json.dumps({"instructions": instructions, "rows": rows}).encode()


def _row(outcome: Outcome, text: Text | None) -> list[Any]:
    judged = outcome if isinstance(outcome, Judgement) else None
    own = judged and {
        aspect: judged.texts[rationale_of(aspect)]
        for aspect in judged.scores
        if rationale_of(aspect) in judged.texts
    }
    shares = judged and {
        aspect: [round(share, 4) for share in each] for aspect, each in judged.probabilities.items()
    }
    return [
        text.candidate if text else None,
        judged and judged.texts.get(RATIONALE),
        None if isinstance(outcome, Judgement) else outcome.error,
        judged and judged.thoughts,
        shares or None,
        outcome.source,
        judged.candidate_cut if judged else 0,
        outcome.columns,
        own or None,
    ]


def _numbers(judgements: Judgements) -> dict[str, bytes]:
    """Return the columns as the page's typed arrays, little-endian; NaN means unknown."""
    columns = judgements.columns

    def rounded(values: NDArray[np.float64]) -> bytes:
        return np.round(values, 3).astype("<f4").tobytes()

    return {
        "series": columns.series.astype("<i2").tobytes(),
        "group": columns.group.astype("<i4").tobytes(),
        "scores": columns.scores.astype("<i2").tobytes(),
        "expected": rounded(columns.expected),
        "confidence": rounded(columns.confidence),
        "overall": rounded(columns.overall),
        "length": columns.length.astype("<i4").tobytes(),
        "flags": columns.flags.tobytes(),
    }


def _data(name: str, content: bytes) -> str:
    packed = base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()
    return f'<script type="application/gzip" id="data-{name}">{packed}</script>\n'


def _asset(name: str) -> str:
    return (files("localjudge") / "report" / name).read_text(encoding="utf-8")


def page_script() -> str:
    """Return the page's own script."""
    return '"use strict";\n(async () => {\n' + "\n".join(map(_asset, SCRIPTS)) + "})();\n"


@cache
def chart_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
