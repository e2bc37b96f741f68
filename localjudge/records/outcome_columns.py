"""The columns of an outcome: its names and types as one flat JSON object, a line of `judgements.jsonl`.

Only this module knows the names of the columns. A reader takes an `Outcome`; a table takes whole objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Criterion, Failure, Judgement, Outcome
from localjudge.records.keys import RESPONSE_LENGTHS

MODEL, NOTICE = "model", "notice"
"""Columns that an export adds to each line: the judge, and the notices of the run or null."""
PAIR_SYSTEMS = ("system_a", "system_b")
"""The columns of the systems in the line of a pair."""
PAIR_DIGESTS = ("response_digest_a", "response_digest_b")
"""The columns of the digests of both responses there."""
PAIR_LENGTHS = ("characters_a", "characters_b")
"""The columns of the lengths of both responses there."""
PREFERENCE, AGREE, ORDERS = "_preference", "_orders_agree", ("_ab", "_ba")
"""Suffixes of an aspect's columns in the line of a pair."""
RATIONALE = "rationale"
"""Name of the column of the rationale; an import reads it, too."""
OVERALL = "overall"
"""Name of the mean over the ordered aspects in tables, reports and rewards."""
_TEXTS = {"instruction", "reference", "candidate"}
_BESIDE = {OVERALL, "annotator", "failed", "n", "pairs", "rank", "rows", *_TEXTS}
"""Names of other columns that stand beside the aspects in tables, exports, reports and label files."""
EXPECTED, PROBABILITIES, _RATIONALE = "_expected", "_probabilities", "_rationale"
"""Suffixes of an aspect's other columns."""
MASS, LIKELIEST, INTERVAL = "_mass", "_likeliest", "_interval"
"""Suffixes of further ones; an aspect's name may end so."""
_OF_ASPECT = {
    EXPECTED: "expected", PROBABILITIES: "probabilities", MASS: "mass", LIKELIEST: "likeliest",
}  # fmt: skip
"""The field of a judgement with the values of each such column."""
_HEAD = ("id", "system", "opponent", "swapped", "status", "error")
"""Fields at the beginning of a line."""
_OF_ANSWER = ("not_likeliest", "rationale_cut", "candidate_cut", "thoughts")
"""Fields that only a judgement has."""
_PLACE = (
    "key", "group", "digest", "response_digest", "opponent_digest", "characters", "opponent_characters",
    "reference_overlap", "row", "source", "columns",
)  # fmt: skip
"""Fields at the end of a line: what identifies its row, measures of its texts, and its place in the input."""


@dataclass(frozen=True)
class AnswerColumns:
    """The columns of a line that depend on the rubric.

    Attributes:
        aspects: the type of the value of each aspect.
        texts: the names of the answer's texts.
        prompt: the columns that tell the prompts of a row apart (`Mode.prompt_columns`).
    """

    aspects: Mapping[str, type[bool] | type[int] | type[str]]
    texts: tuple[str, ...] = (RATIONALE,)
    prompt: frozenset[str] = frozenset()

    @cached_property
    def required(self) -> frozenset[str]:
        """The columns that every line has, for any answer."""
        return COMMON_COLUMNS | self.prompt

    @cached_property
    def names(self) -> frozenset[str]:
        """The columns that a line may have."""
        of_aspects = (aspect + suffix for aspect in self.aspects for suffix in ("", *_OF_ASPECT))
        return frozenset({*self.required, *self.texts, *of_aspects})

    @cached_property
    def identifying(self) -> tuple[str, ...]:
        """The columns that are fields of an outcome by the same names, judged or failed."""
        own = self.prompt - CRITERION_COLUMNS
        return tuple({"id", "system", "prompt_tokens", *_PLACE} - ORDER_COLUMNS | own)

    @cached_property
    def of_aspects(self) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """Each field of a judgement by aspects, except the scores, with each aspect and its column."""
        return tuple(
            (field, tuple((aspect, aspect + suffix) for aspect in self.aspects))
            for suffix, field in _OF_ASPECT.items()
        )


def rationale_of(aspect: str) -> str:
    """Return the name of the column of an aspect's own rationale."""
    return aspect + _RATIONALE


def to_line(outcome: Outcome, columns: AnswerColumns) -> dict[str, Any]:
    """Return an outcome as one flat JSON object; judgements and failures have the same columns.

    Args:
        outcome: a judgement or a failure.
        columns: the columns of its rubric.
    """
    aspects, judged = columns.aspects, outcome if isinstance(outcome, Judgement) else None
    line = {name: getattr(outcome, name) for name in _HEAD}
    line |= {column: getattr(outcome.criterion, name, None) for name, column in _OF_CRITERION.items()}
    line |= {text: judged and judged.texts[text] for text in columns.texts}
    line |= {aspect: None if judged is None else judged.scores[aspect] for aspect in aspects}
    for suffix, field in _OF_ASPECT.items():
        line |= {aspect + suffix: judged and getattr(judged, field).get(aspect) for aspect in aspects}
    line |= {name: judged and getattr(judged, name) for name in _OF_ANSWER}
    line["failed_answer"] = outcome.failed_answer if isinstance(outcome, Failure) else None
    line["prompt_tokens"] = outcome.prompt_tokens
    line["output_tokens"] = judged and judged.output_tokens
    line |= {name: getattr(outcome, name) for name in _PLACE}
    for name in PROMPT_COLUMNS.difference(columns.prompt):
        del line[name]
    return line


def from_line(line: Mapping[str, Any], columns: AnswerColumns) -> Outcome:
    """Return the outcome of a line: the inverse of `to_line`.

    Raises:
        ValueError: the line does not belong to a run with these columns, or is damaged.
    """
    if not columns.required <= line.keys() <= columns.names:
        raise ValueError("columns are missing, or there are others")
    common: dict[str, Any] = {name: line.get(name) for name in columns.identifying}
    if line.get("criterion") is not None:
        own = {name: line[column] for name, column in _OF_CRITERION.items() if column in columns.prompt}
        common["criterion"] = Criterion.model_validate(own)
    if line["status"] == "failed":
        own = {"error": line["error"], "failed_answer": line["failed_answer"]}
        return Failure.model_validate({**common, **own})
    if line["status"] != "judged":
        raise ValueError("the status is neither judged nor failed")
    try:
        judged = common | {name: line[name] for name in (*_OF_ANSWER, "output_tokens")}
        judged["texts"] = {text: line[text] for text in columns.texts}
        judged["scores"] = {aspect: line[aspect] for aspect in columns.aspects}
        for field, names in columns.of_aspects:
            judged[field] = {aspect: value for aspect, name in names if (value := line[name]) is not None}
    except KeyError as error:
        raise ValueError(f"no column {error}") from None
    return Judgement.model_validate(judged)


def from_table(row: Mapping[str, Any], columns: AnswerColumns) -> Outcome:
    """Return the outcome of a row of a table, such as an export, which can have further columns.

    A table without a column of the answer's texts has empty texts.

    Raises:
        ValueError: a column is missing, or has a value that it cannot have.
    """
    if missing := sorted(columns.required - row.keys()):
        raise ValueError(f"no column {missing[0]}")
    line = {name: row.get(name) for name in columns.names}
    if line["status"] == "judged":
        line |= {text: line[text] or "" for text in columns.texts}
    return from_line(line, columns)


def to_bytes(outcome: Outcome, columns: AnswerColumns) -> bytes:
    """Return an outcome's line as bytes of the file.

    Raises:
        UsageError: the input's other columns cannot be written as JSON.
    """
    line = to_line(outcome, columns)
    return to_json(line, line).encode() + b"\n"


def from_bytes(piece: bytes, columns: AnswerColumns) -> Outcome:
    """Return the outcome of a line of the file: the inverse of `to_bytes`.

    Raises:
        ValueError: the line does not belong to a run with these columns, or is damaged.
    """
    try:
        line = json.loads(piece)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(line, dict):
        raise ValueError("not an object")
    outcome = from_line(line, columns)
    if outcome.row is None:
        raise ValueError("the row has no number")
    return outcome


_OF_CRITERION = {
    "text": "criterion", "points": "points", "name": "criterion_name", "tags": "tags", "part": "part",
    "parts": "parts",
}  # fmt: skip
"""The column of each field of a criterion."""
ORDER_COLUMNS = frozenset({"opponent", "swapped", "opponent_digest", "opponent_characters"})
"""Columns that tell the orders of a pair apart."""
CRITERION_COLUMNS = frozenset(_OF_CRITERION.values())
"""Columns that tell the criteria of a row apart."""
PROMPT_COLUMNS = ORDER_COLUMNS | CRITERION_COLUMNS
"""Columns that tell the prompts of a row apart, in any mode."""
COMMON_COLUMNS = frozenset(to_line(Failure(id="", key="", error=""), AnswerColumns({}, ())))
"""Columns that every line has, for any rubric."""


def is_reserved(name: str) -> bool:
    """Return whether an aspect with this name would conflict with another column of a response or a pair."""
    taken = COMMON_COLUMNS | ORDER_COLUMNS | {RATIONALE, MODEL, NOTICE} | _BESIDE
    return name in taken or name.endswith((EXPECTED, PROBABILITIES, _RATIONALE))


def to_json(value: Any, line: Mapping[str, Any]) -> str:
    """Return a value of a line, or the whole line, as JSON.

    Raises:
        UsageError: JSON cannot hold the value, for example a cycle; the message names the row.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{place_of(line)}: its columns cannot be written as JSON: {error}") from None


def without_objects(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line with the input's other columns as JSON text, for tables that cannot hold objects.

    Raises:
        UsageError: JSON cannot hold them; the message names the row.
    """
    return {**line, "columns": to_json(line["columns"], line)}


def place_of(line: Mapping[str, Any]) -> str:
    """Return the place of a line's row in the input, for a message."""
    return line.get("source") or f"row {line.get('id')}"


def arrow_types(columns: AnswerColumns) -> dict[str, Any]:
    """Return the Arrow type of each column of lines that is not text, and of the intervals in an export."""
    import pyarrow

    number, real, kinds = pyarrow.int64(), pyarrow.float64(), arrow_kinds()
    counts = ("candidate_cut", "prompt_tokens", "output_tokens", *RESPONSE_LENGTHS, "row", "part", "parts")
    types = dict.fromkeys(counts, number)
    types |= dict.fromkeys(("rationale_cut", "swapped"), pyarrow.bool_())
    types |= dict.fromkeys(("points", "reference_overlap"), real)
    types |= dict.fromkeys(("tags", "not_likeliest"), pyarrow.list_(pyarrow.string()))
    for name in PROMPT_COLUMNS & types.keys() - columns.prompt:
        del types[name]
    for aspect, kind in columns.aspects.items():
        own = {aspect: kinds[kind], aspect + LIKELIEST: pyarrow.bool_()}
        own |= dict.fromkeys((aspect + EXPECTED, aspect + MASS), real)
        own |= dict.fromkeys((aspect + PROBABILITIES, aspect + INTERVAL), pyarrow.list_(real))
        types |= own
    return types


def arrow_kinds() -> dict[type, Any]:
    """Return the Arrow type of each type of value."""
    import pyarrow

    return {bool: pyarrow.bool_(), int: pyarrow.int64(), str: pyarrow.string()}
