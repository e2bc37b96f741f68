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

MODEL = "model"
"""The column of the judge, which an export adds to each line."""
NOTICE = "notice"
"""The column of the notices of the run, or null, which an export adds to each line."""
PAIR_SYSTEMS = ("system_a", "system_b")
"""The columns of the systems in the line of a pair."""
PAIR_DIGESTS = ("response_digest_a", "response_digest_b")
"""The columns of the digests of both responses there."""
PAIR_LENGTHS = ("characters_a", "characters_b")
"""The columns of the lengths of both responses there."""
PREFERENCE = "_preference"
"""The suffix of an aspect's preference in the line of a pair."""
AGREE = "_orders_agree"
"""The suffix of whether both orders agree."""
ORDERS = ("_ab", "_ba")
"""The suffixes of the columns of each order: the input's, and its reverse."""
RATIONALE = "rationale"
"""Name of the column of the rationale; an import reads it, too."""
OVERALL = "overall"
"""Name of the mean over the ordered aspects in tables, reports and rewards."""
_TEXTS = {"instruction", "reference", "candidate"}
_BESIDE = {OVERALL, "annotator", "failed", "n", "pairs", "rank", "rows"} | _TEXTS
"""Names of other columns that stand beside the aspects in tables, exports, reports and label files."""
# The suffixes of an aspect's other columns; the name of an aspect cannot end with one of the first three.
EXPECTED = "_expected"
PROBABILITIES = "_probabilities"
_RATIONALE = "_rationale"
MASS = "_mass"
LIKELIEST = "_likeliest"
INTERVAL = "_interval"
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
        names = set(self.required)
        names.update(self.texts)
        for aspect in self.aspects:
            names.add(aspect)
            names.update(aspect + suffix for suffix in _OF_ASPECT)
        return frozenset(names)

    @cached_property
    def identifying(self) -> tuple[str, ...]:
        """The columns that are fields of an outcome by the same names, judged or failed."""
        of_every_mode = {"id", "system", "prompt_tokens", *_PLACE} - ORDER_COLUMNS
        of_this_mode = self.prompt - CRITERION_COLUMNS
        return tuple(of_every_mode | of_this_mode)

    @cached_property
    def of_aspects(self) -> dict[str, dict[str, str]]:
        """The column of each aspect, for each field of a judgement by aspects except the scores."""
        columns: dict[str, dict[str, str]] = {}
        for suffix, field in _OF_ASPECT.items():
            columns[field] = {aspect: aspect + suffix for aspect in self.aspects}
        return columns


def rationale_of(aspect: str) -> str:
    """Return the name of the column of an aspect's own rationale."""
    return aspect + _RATIONALE


def to_line(outcome: Outcome, columns: AnswerColumns) -> dict[str, Any]:
    """Return an outcome as one flat JSON object; judgements and failures have the same columns.

    Args:
        outcome: a judgement or a failure.
        columns: the columns of its rubric.
    """
    line: dict[str, Any] = {name: getattr(outcome, name) for name in _HEAD}
    for name, column in _OF_CRITERION.items():
        line[column] = getattr(outcome.criterion, name, None)
    if isinstance(outcome, Judgement):
        line.update(_cells_of_answer(outcome, columns))
    else:
        line.update(_cells_without_answer(outcome, columns))
    for name in _PLACE:
        line[name] = getattr(outcome, name)
    for name in PROMPT_COLUMNS - columns.prompt:
        del line[name]
    return line


def _cells_of_answer(judgement: Judgement, columns: AnswerColumns) -> dict[str, Any]:
    """Return the columns of a judgement's answer."""
    cells: dict[str, Any] = {}
    for text in columns.texts:
        cells[text] = judgement.texts[text]
    for aspect in columns.aspects:
        cells[aspect] = judgement.scores[aspect]
    for field, column_of in columns.of_aspects.items():
        by_aspect = getattr(judgement, field)
        for aspect, column in column_of.items():
            cells[column] = by_aspect.get(aspect)
    for name in _OF_ANSWER:
        cells[name] = getattr(judgement, name)
    cells["failed_answer"] = None
    cells["prompt_tokens"] = judgement.prompt_tokens
    cells["output_tokens"] = judgement.output_tokens
    return cells


def _cells_without_answer(failure: Failure, columns: AnswerColumns) -> dict[str, Any]:
    """Return the same columns of a failure, which has none of the answer."""
    names = list(columns.texts) + list(columns.aspects)
    for column_of in columns.of_aspects.values():
        names.extend(column_of.values())
    names.extend(_OF_ANSWER)
    cells: dict[str, Any] = dict.fromkeys(names)
    cells["failed_answer"] = failure.failed_answer
    cells["prompt_tokens"] = failure.prompt_tokens
    cells["output_tokens"] = None
    return cells


def from_line(line: Mapping[str, Any], columns: AnswerColumns) -> Outcome:
    """Return the outcome of a line: the inverse of `to_line`.

    Raises:
        ValueError: the line does not belong to a run with these columns, or is damaged.
    """
    if not columns.required <= line.keys() <= columns.names:
        raise ValueError("columns are missing, or there are others")
    common: dict[str, Any] = {name: line.get(name) for name in columns.identifying}
    if line.get("criterion") is not None:
        criterion = {name: line[column] for name, column in _OF_CRITERION.items() if column in columns.prompt}
        common["criterion"] = Criterion.model_validate(criterion)
    if line["status"] == "failed":
        common["error"] = line["error"]
        common["failed_answer"] = line["failed_answer"]
        return Failure.model_validate(common)
    if line["status"] != "judged":
        raise ValueError("the status is neither judged nor failed")
    try:
        answer = _answer_fields(line, columns)
    except KeyError as error:
        raise ValueError(f"no column {error}") from None
    return Judgement.model_validate(common | answer)


def _answer_fields(line: Mapping[str, Any], columns: AnswerColumns) -> dict[str, Any]:
    """Return the fields of a judgement that are its answer.

    Raises:
        KeyError: a column is missing.
    """
    fields: dict[str, Any] = {name: line[name] for name in _OF_ANSWER}
    fields["output_tokens"] = line["output_tokens"]
    fields["texts"] = {text: line[text] for text in columns.texts}
    fields["scores"] = {aspect: line[aspect] for aspect in columns.aspects}
    for field, column_of in columns.of_aspects.items():
        fields[field] = {
            aspect: line[column] for aspect, column in column_of.items() if line[column] is not None
        }
    return fields


def from_table(row: Mapping[str, Any], columns: AnswerColumns) -> Outcome:
    """Return the outcome of a row of a table, such as an export, which can have further columns.

    A table without a column of the answer's texts has empty texts.

    Raises:
        ValueError: a column is missing, or has a value that it cannot have.
    """
    missing = columns.required - row.keys()
    if missing:
        raise ValueError(f"no column {min(missing)}")
    line = {name: row.get(name) for name in columns.names}
    if line["status"] == "judged":
        for text in columns.texts:
            line[text] = line[text] or ""
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
    if name.endswith((EXPECTED, PROBABILITIES, _RATIONALE)):
        return True
    return name in COMMON_COLUMNS | ORDER_COLUMNS | {RATIONALE, MODEL, NOTICE} | _BESIDE


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
    source: str | None = line.get("source")
    if source:
        return source
    return f"row {line.get('id')}"


def arrow_types(columns: AnswerColumns) -> dict[str, Any]:
    """Return the Arrow type of each column of lines that is not text, and of the intervals in an export."""
    import pyarrow

    real = pyarrow.float64()
    reals = pyarrow.list_(real)
    flag = pyarrow.bool_()
    types: dict[str, Any] = {
        "rationale_cut": flag,
        "swapped": flag,
        "points": real,
        "reference_overlap": real,
        "tags": pyarrow.list_(pyarrow.string()),
        "not_likeliest": pyarrow.list_(pyarrow.string()),
    }
    for count in ("candidate_cut", "prompt_tokens", "output_tokens", *RESPONSE_LENGTHS, "row", "part", "parts"):
        types[count] = pyarrow.int64()
    for name in PROMPT_COLUMNS - columns.prompt:
        types.pop(name, None)
    for aspect, kind in columns.aspects.items():
        types[aspect] = arrow_kinds()[kind]
        types[aspect + LIKELIEST] = flag
        types[aspect + EXPECTED] = real
        types[aspect + MASS] = real
        types[aspect + PROBABILITIES] = reals
        types[aspect + INTERVAL] = reals
    return types


def arrow_kinds() -> dict[type, Any]:
    """Return the Arrow type of each type of value."""
    import pyarrow

    return {bool: pyarrow.bool_(), int: pyarrow.int64(), str: pyarrow.string()}
