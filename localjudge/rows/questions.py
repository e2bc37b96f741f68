"""Questions in a file of their own, which answers name: the layout of Arena-Hard v0.1 and of MT-Bench.

    question.jsonl            {"question_id": …, "category": …, "turns": [{"content": "…"}]}
    model_answer/MODEL.jsonl  {"question_id": …, "model_id": …, "choices": [{"turns": [{"content": "…"}]}]}

A turn is an object with `content`, as in Arena-Hard, or a string, as in MT-Bench.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from localjudge.errors import RowError, UsageError
from localjudge.rows.columns import Columns, names_of, responses_of
from localjudge.rows.conversation import CONVERSATION, CONVERSATIONS, MESSAGES, judges_conversation
from localjudge.rows.record import Record, RecordError

TURN = "turn"
"""The column with the number of the turn that is judged, as the judgements of MT-Bench name it."""
_ID, _TURNS, _CHOICES, _REFERENCE = "question_id", "turns", "choices", "reference"


class Questions:
    """The questions of a run's inputs, in memory, by their ids.

    Args:
        columns: the column of each field whose column has a custom name.
        used: the fields that the rubric's template uses.

    Attributes:
        files: the names of the inputs that hold questions; their records are not rows.
    """

    def __init__(self, columns: Columns, used: Sequence[str]) -> None:
        self._columns, self._used = columns, used
        self._known: dict[str, Mapping[str, Any]] = {}
        self.files: list[str] = []

    def read(self, name: str, records: Iterator[tuple[int, Record]]) -> None:
        """Read an input if it holds questions, which its first record shows.

        Args:
            name: the input.
            records: its records, each with its line or number.

        Raises:
            UsageError: another record is not a question, or two different questions have the same id.
        """
        for place, (number, record) in enumerate(records):
            if not self._is_question(record):
                if place == 0:
                    return
                problem = (
                    record.reason
                    if isinstance(record, RowError)
                    else "is not a question with question_id and turns"
                )
                raise UsageError(f"{name}:{number}: {problem}; correct the file of questions")
            assert isinstance(record, Mapping)
            known = self._known.setdefault(str(record[_ID]), record)
            if known[_TURNS] != record[_TURNS]:
                raise UsageError(
                    f"{name}:{number}: another question has the id {record[_ID]!r}; keep one of them"
                )
            if place == 0:
                self.files.append(name)

    def _is_question(self, record: Record) -> bool:
        if isinstance(record, RowError) or record.get(_ID) is None or not _texts(record.get(_TURNS)):
            return False
        fields = (*responses_of(self._used), MESSAGES, CONVERSATION)
        return not record.keys() & {_CHOICES, *(name for field in fields for name in self._names(field))}

    def joined(self, record: Record) -> Record:
        """Return a record with its question, if it is an answer to one; or the reason why it cannot be judged.

        An answer of one turn gets an instruction and a candidate. An answer of several turns gets `messages`,
        if the template shows a conversation. Both get the number of their last turn. If the question has a list
        of references, one for each turn, the answer gets that of the turn that is judged, or all if the whole
        conversation is judged.

        Args:
            record: columns by name; or the reason why there is no record.
        """
        if isinstance(record, RowError) or not _is_answer(record):
            return record
        question = self._known.get(str(record[_ID]))
        if question is None:
            if not self.files:
                raise RecordError(
                    "its question is in another file; give that file, too, such as question.jsonl"
                )
            raise RecordError(f"no question in {', '.join(self.files)} has the id {record[_ID]!r}")
        if len(record[_CHOICES]) > 1:
            raise RecordError(f"has {len(record[_CHOICES])} choices; a row has one response")
        asked, answered = _texts(question[_TURNS]), _texts(record[_CHOICES][0][_TURNS])
        if not answered:
            raise RecordError("the turns of its choice are not texts")
        if len(answered) != len(asked):
            raise RecordError(f"has {len(answered)} of the {len(asked)} turns of its question")
        if len(asked) > 1 and CONVERSATIONS.isdisjoint(self._used):
            unseen = (
                f"its question has {len(asked)} turns, and the rubric has no {{${CONVERSATION}}} to show them"
            )
            raise RecordError(f"{unseen}; judge them with --rubric conversation")
        of_answer = {*self._names("id"), *self._names("system")}
        rest = {name: value for name, value in question.items() if name not in of_answer}
        rest = {TURN: len(asked)} | rest | dict(record)
        del rest[_TURNS], rest[_CHOICES]
        if references := _texts(rest.get(_REFERENCE)):
            whole = judges_conversation(self._used)
            rest[_REFERENCE] = "\n\n".join(references) if whole else references[-1]
        if len(asked) == 1 and not judges_conversation(self._used):
            return rest | {self._names("instruction")[0]: asked[0], self._names("candidate")[0]: answered[0]}
        return rest | {self._names(MESSAGES)[0]: list(_conversation(asked, answered))}

    def _names(self, field: str) -> tuple[str, ...]:
        return names_of(field, self._columns, self._used)

    def identity(self, answer: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the id and the system of an answer."""
        systems = (answer[name] for name in self._names("system") if name in answer)
        return str(answer[_ID]), next(systems, None)


def _conversation(asked: Iterable[str], answered: Iterable[str]) -> Iterator[dict[str, str]]:
    for question, answer in zip(asked, answered, strict=True):
        yield {"role": "user", "content": question}
        yield {"role": "assistant", "content": answer}


def _is_answer(record: Mapping[str, Any]) -> bool:
    choices = record.get(_CHOICES)
    first = choices[0] if isinstance(choices, list) and choices else None
    return record.get(_ID) is not None and isinstance(first, Mapping) and _TURNS in first


def _texts(turns: Any) -> list[str]:
    """Return the text of each turn; nothing if one of them is not text."""
    given = turns if isinstance(turns, list) else []
    contents = [turn.get("content") if isinstance(turn, Mapping) else turn for turn in given]
    texts = [text for text in contents if isinstance(text, str)]
    return texts if len(texts) == len(given) else []
