"""Records as other tools write them, and what is right for each: an oracle that knows no declaration.

A `Shape` makes random records of one tool, writes them into files as the tool does, and says what each record
is: its instruction, conversation, responses, reference, systems, criteria and labels, or that it must be
refused. What is right comes from the documentation and the source of the tools.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

Record = dict[str, Any]
Uses = tuple[str, ...]

# The fields of rubrics: of one response, alone or beside another text; of a conversation; of two responses.
ANSWER: Uses = ("instruction", "candidate")
GRADED: Uses = ("instruction", "reference", "candidate")
GROUNDED: Uses = ("context", "instruction", "candidate")
CHECKED: Uses = ("instruction", "candidate", "criterion")
BY_CRITERIA: Uses = ("instruction", "reference", "candidate", "rubric")
DIALOGUE: Uses = ("conversation",)
PAIR: Uses = ("instruction", "candidate_a", "candidate_b")
GRADED_PAIR: Uses = ("instruction", "reference", "candidate_a", "candidate_b")

NAMES = {
    ANSWER: "answer",
    GRADED: "answer with reference",
    GROUNDED: "answer with context",
    CHECKED: "answer with a list of criteria",
    BY_CRITERIA: "answer with criteria and reference",
    DIALOGUE: "conversation",
    PAIR: "pair",
    GRADED_PAIR: "pair with reference",
}

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"


@dataclass(frozen=True, slots=True)
class Said:
    """A turn of a conversation, as the judge is to see it.

    `calls` are the assistant's calls of tools, each a name and its arguments; `answers` is the number of the
    call whose result this turn is.
    """

    role: str
    text: str | None
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...] = ()
    answers: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a row of a record must be.

    Attributes:
        responses: the text of the response, or of both.
        instruction: the text of the instruction; a tuple has each text that is right.
        turns: the conversation without the response; empty if the instruction is all of it.
        trajectories: for pairs of conversations, the turns of each, with its responses.
        reference: the text of the reference, a tuple of alternatives, or None.
        ordered: texts that must stand in the conversation in this order, where its form is the reader's choice.
        systems: who wrote each response, each a name or a tuple of the right names; empty if the record does
            not say it.
        systems_optional: whether the systems may be missing, because they stand outside of the record.
        fields: texts of further fields, by name; a tuple has each text that is right.
        shown: texts that must stand in a further field, in this order.
        criteria: the text and the points of each criterion.
        columns: values that must be kept with the row, such as labels, by the name of their key; a tuple has
            each value that is right.
    """

    responses: tuple[str, ...]
    instruction: str | tuple[str, ...] | None = None
    turns: tuple[Said, ...] = ()
    trajectories: tuple[tuple[Said, ...], ...] = ()
    reference: str | tuple[str, ...] | None = None
    ordered: tuple[str, ...] = ()
    systems: tuple[str | tuple[str, ...] | None, ...] = ()
    systems_optional: bool = False
    shown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fields: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    criteria: tuple[tuple[str, float], ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def conversations(self) -> tuple[tuple[Said, ...], ...]:
        """All turns, the response last, in each way that is right."""
        asked = self.instruction if isinstance(self.instruction, tuple) else (self.instruction,)
        before = [self.turns] if self.turns else [(Said(USER, text),) for text in asked]
        answer = tuple(Said(ASSISTANT, text) for text in self.responses[:1])
        return tuple((*turns, *answer) for turns in before)


@dataclass(frozen=True, slots=True)
class Made:
    """A record, and its rows; no rows if it must be refused."""

    record: Record
    readings: tuple[Reading, ...] = ()
    label: str | None = None
    beside: Record | None = None


Maker = Callable[["Texts", int], Made]
Writer = Callable[[Path, Sequence[Made]], list[Path]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The records of one tool.

    Attributes:
        name: the tool and the kind of file.
        make: makes a record from texts and its number.
        write: writes records into files of a folder and returns the files that a user names.
        read: the fields of the rubrics under which each record is read.
        refuse: the fields of the rubrics under which each record must be refused.
        untold: the fields of the rubrics for which another shape of the same records says what is right.
        labels: whether `Made.label` says which response of a pair is better.
        records: how many records are made.
    """

    name: str
    make: Maker
    write: Writer
    read: tuple[Uses, ...] = (ANSWER,)
    refuse: tuple[Uses, ...] = ()
    untold: tuple[Uses, ...] = ()
    labels: bool = False
    records: int = 20


WORDS = ("bridge", "river", "lantern", "copper", "seven", "winter", "garden", "letter", "engine", "harbour")
ODDITIES = (
    ' "quoted" ', " it's ", ", and; ", "\n", "\n\n- item\n", "\tcolumn\t", " naïve “curly” ", " 日本語 ",
    " 🙂 ", " {x} ", " <b>tag</b> ", " C:\\dir ", " 5 % ", " $y$ ", " # head\n", " null ", "```\ncode\n```",
)  # fmt: skip


class Texts:
    """Made-up texts, each of them unique, with what breaks readers: quotes, commas, lines, other scripts."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.count = 0

    def word(self) -> str:
        """Return a unique word of letters and digits."""
        self.count += 1
        return f"{self.rng.choice(WORDS)}{self.count}{self.rng.choice('abcdef')}{self.rng.randrange(100, 999)}"

    def text(self, words: int = 6) -> str:
        """Return a unique text; it neither begins nor ends with white space."""
        parts = [self.word()]
        for _ in range(self.rng.randrange(words)):
            parts.append(self.rng.choice(ODDITIES) if self.rng.random() < 0.3 else " ")
            parts.append(self.rng.choice(WORDS))
        return "".join(parts) + self.rng.choice([".", "?", "!", ""])

    def line(self) -> str:
        """Return a unique text of one line without odd characters."""
        return f"{self.word()} {self.rng.choice(WORDS)} {self.rng.choice(WORDS)}"

    def maybe(self, text: str, share: float = 0.8) -> str:
        """Return the text, or an empty one."""
        return text if self.rng.random() < share else ""

    def name(self) -> str:
        """Return the name of a system."""
        return f"{self.rng.choice(['north', 'south', 'org/east', 'west-7b'])}-{self.rng.randrange(4)}"

    def names(self) -> tuple[str, str]:
        """Return two different names of systems."""
        first = self.name()
        return first, f"{first}-b"

    def shuffled(self, record: Record, **extra: Any) -> Record:
        """Return the record with further keys, its keys in a random order."""
        items = [*record.items(), *extra.items()]
        self.rng.shuffle(items)
        return dict(items)


# --- Files, as tools write them.


def json_lines(name: str, *, ascii_only: bool = False) -> Writer:
    """Write an object on each line."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        lines = (json.dumps(each.record, ensure_ascii=ascii_only) for each in made)
        return [written(folder / name, "".join(line + "\n" for line in lines).encode())]

    return write


def json_array(name: str, indent: int | None = 2) -> Writer:
    """Write one array of all records."""
    return json_document(name, lambda made: [each.record for each in made], indent)


def json_document(name: str, document: Callable[[Sequence[Made]], Any], indent: int | None = 2) -> Writer:
    """Write one document that holds the records."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        text = json.dumps(document(made), indent=indent, ensure_ascii=False)
        return [written(folder / name, text.encode())]

    return write


def one_document_each(suffix: str) -> Writer:
    """Write each record as a file of its own."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        return [
            written(folder / f"{number:03}{suffix}", json.dumps(each.record, indent=2).encode())
            for number, each in enumerate(made)
        ]

    return write


def sheet(name: str, *, delimiter: str = ",") -> Writer:
    """Write a table as Python's `csv` does; a record's keys are its columns, lists and objects are JSON."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, list(made[0].record), delimiter=delimiter)
        writer.writeheader()
        for each in made:
            writer.writerow({key: cell_of(value) for key, value in each.record.items()})
        return [written(folder / name, stream.getvalue().encode())]

    return write


def cell_of(value: Any) -> Any:
    """Return a value as a cell: JSON for lists and objects."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def parquet(name: str) -> Writer:
    """Write a Parquet file; the keys of all records are equal."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([each.record for each in made]), folder / name)
        return [folder / name]

    return write


def two_files(name: str, other: str) -> Writer:
    """Write the records into one file, and what stands beside them into another, in another order."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        beside = [json.dumps(each.beside) + "\n" for each in made if each.beside is not None]
        first = json_lines(name)(folder, made)
        unique = sorted(dict.fromkeys(beside))
        return [*first, written(folder / other, "".join(unique).encode())]

    return write


def written(file: Path, data: bytes) -> Path:
    """Write a file and return its path."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


# --- Turns, in the spellings of tools.


def chat(*turns: Said) -> list[Record]:
    """Return turns of texts as messages in OpenAI's form."""
    return [{"role": turn.role, "content": turn.text} for turn in turns]


def dialogue(texts: Texts, rounds: int, *, system: bool = False) -> tuple[Said, ...]:
    """Return a conversation whose last turn is the user's."""
    turns = [Said(SYSTEM, texts.text())] if system else []
    for _ in range(rounds - 1):
        turns += [Said(USER, texts.text()), Said(ASSISTANT, texts.text())]
    return (*turns, Said(USER, texts.text()))


def last_of(turns: Sequence[Said]) -> str:
    """Return the text of the last turn."""
    return turns[-1].text or ""
