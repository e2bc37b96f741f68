"""Decide which columns are the turns of a conversation, and which of them hold the response."""

from __future__ import annotations

from collections.abc import Sequence

from localjudge.errors import RowProblem
from localjudge.rows.claims import Claims
from localjudge.rows.columns import (
    COLUMN_NAMES,
    CONVERSATIONS,
    HISTORY,
    MESSAGES,
    SYSTEM_PROMPT,
    ReadingFlags,
    folded,
    judges_conversation,
    responses_of,
)
from localjudge.rows.first_records import Column, FirstRecords
from localjudge.rows.missing import flag_of, missing_fields_reason
from localjudge.rows.reading import FieldSource, Source, TurnSource
from localjudge.rows.record import RecordError
from localjudge.rows.shapes import Shape

_END_OF_SENTENCE = (".", "!", "?", ":", "\n")
_LONGEST_NAME = 100
_OF_OUTCOMES = frozenset({"key", "label"})
"""Columns of an exported outcome, in which `model` is the judge."""


class ConversationDecision:
    """What is decided of the turns.

    Args:
        first: the first records.
        claims: the sources of the other fields; those of the turns are added.
        form: the form of the records.
        flags: what the user says of the file.
        used: the fields that the rubric's template uses.

    Attributes:
        responses_hold_prompt: as in `Reading`.
        turns_are_instruction: as in `Reading`.
        candidate_is_transcript: as in `Reading`.
    """

    def __init__(
        self, first: FirstRecords, claims: Claims, form: Shape, flags: ReadingFlags, used: Sequence[str]
    ) -> None:
        self._first, self._claims, self._form = first, claims, form
        self._flags, self._used = flags, used
        self._judged = responses_of(used)
        self.responses_hold_prompt = False
        self.turns_are_instruction = False
        self.candidate_is_transcript = False

    def decide(self) -> None:
        """Decide.

        Raises:
            RecordError: the turns can be read in two ways, or hold no response.
        """
        self._take_system_prompt()
        self._take_named_history()
        if "candidate" in self._judged:
            self._take_conversation_columns()
            if MESSAGES in self._claims.fields:
                self._leave_other_question()
            else:
                self._take_turns()
            self._settle_prompt()
            self._settle_response()
        else:
            self._settle_pair()

    def _take_system_prompt(self) -> None:
        """Decide whether a column `system` has the prompts of a system, or the names of systems.

        Raises:
            RecordError: it can be either.
        """
        each = self._first.columns.get("system")
        self._leave_names(each)
        named = {"system", SYSTEM_PROMPT} & {*self._flags.columns, *self._form.fields}
        if each is None or each.kind is None or named or SYSTEM_PROMPT in self._claims.fields:
            return
        values = self._first.values(each.source)
        prompts = [value for value in values if _is_prompt(value)]
        others = [
            other
            for other in self._claims.usual_columns(COLUMN_NAMES["system"])
            if other is not each and other.kind is not None
        ]
        if len(prompts) * 2 > len(values):
            self._claims.release("system")
            self._claims.add_column(SYSTEM_PROMPT, each)
            if others and "candidate" in self._judged:
                self._claims.add_column("system", others[0])
        elif others and "system" in self._claims.fields and self._has_chat():
            if self._first.values(others[0].source) != values:
                raise RecordError(
                    f"{each.name!r} can be a prompt or, like {others[0].name!r}, the name of a system; "
                    f"choose the name with {flag_of('system', others[0].name)}"
                )

    def _leave_names(self, each: Column | None) -> None:
        """Leave a column `system` of names to the system, where a shape takes it for prompts."""
        if each is None or SYSTEM_PROMPT not in self._form.fields:
            return
        source = self._claims.fields.get(SYSTEM_PROMPT)
        if source is None or source.texts != (each.source,):
            return
        values = [str(value) for value in self._first.values(each.source) if value]
        names = [value for value in values if not any(character.isspace() for character in value)]
        if len(names) * 2 > len(values):
            self._claims.release(SYSTEM_PROMPT)
            if "system" not in self._claims.fields:
                self._claims.add_column("system", each)

    def _has_chat(self) -> bool:
        """Return whether the records are conversations, and no outcomes."""
        return self._first.has_turns and not self._first.columns.keys() & _OF_OUTCOMES

    def _take_conversation_columns(self) -> None:
        """Take a column with the text, or the turns, of a conversation for the rubric's field of that name."""
        fields = self._claims.fields
        for name in CONVERSATIONS.intersection(self._used):
            each = self._first.columns.get(name)
            if each is None or name in fields or not self._claims.is_free(each):
                continue
            is_free = MESSAGES not in fields and "candidate" not in {*self._flags.columns, *self._form.fields}
            if each.kind == "turns":
                if MESSAGES not in fields and MESSAGES not in self._first.columns:
                    self._claims.add_column(MESSAGES, each)
            elif judges_conversation(self._used) and is_free:
                self._claims.release("candidate")
                self._claims.add_column("candidate", each)
                self.candidate_is_transcript = True
            else:
                self._claims.add_column(name, each)

    def _take_named_history(self) -> None:
        """Take the history that a flag names, with its question."""
        history = self._claims.fields.pop(HISTORY, None)
        if history is None:
            return
        if MESSAGES in self._claims.fields:
            raise RecordError(
                "`columns` history and messages: the messages are the whole conversation; give one"
            )
        question = self._claims.fields.get("instruction")
        if question is None or question.kind != "text":
            path = history.texts[0].path
            reason = f"{path!r} is a history without a question after it; name the question with `columns` "
            raise RecordError(f"{reason}instruction=COLUMN, or the turns with `columns` messages={path}")
        self._add_history(history.texts[0], question)

    def _leave_other_question(self) -> None:
        """Leave a question that is no turn of the messages which a flag names among the columns of the row."""
        messages, question = self._claims.fields[MESSAGES], self._claims.fields.get("instruction")
        if MESSAGES not in self._flags.columns or "instruction" in self._flags.columns or question is None:
            return
        is_text = question.kind == "text" and len(question.texts) == 1
        if is_text and not self._first.are_said(question.texts[0], messages.texts[0]):
            if self._first.last_role(messages.texts[0]) != "user":
                self._claims.release("instruction")

    def _take_turns(self) -> None:
        """Take the column of messages, or of the history before a question.

        Raises:
            RecordError: several columns can be the conversation.
        """
        fields = self._claims.fields
        if not self._form.usual and self._form.fields.keys() & {"candidate", MESSAGES}:
            return
        free = self._claims.free_columns()
        talks = [each for each in free if each.kind == "turns"]
        named = [each for each in talks if folded(each.name) in COLUMN_NAMES[MESSAGES]]
        question = fields.get("instruction")
        has_question = question is not None and question.kind == "text"
        history = self._history() if has_question else None
        if history is not None and question is not None:
            self._add_history(history.source, question)
        elif named:
            self._take_messages(named[0], question)
        elif "candidate" in fields or question is not None:
            return
        elif empty := self._messages_without_values():
            # Messages that are missing in the first records must not give their field to another column.
            self._claims.add_column(MESSAGES, empty, kind="turns")
        elif len(talks) > 1:
            names = " and ".join(repr(each.name) for each in talks)
            raise RecordError(f"{names} are conversations; choose one with --column messages={talks[0].name}")
        elif talks:
            self._take_messages(talks[0], question)

    def _messages_without_values(self) -> Column | None:
        """Return the free column with a usual name of messages that no first record has; None without one."""
        named = self._claims.usual_columns(COLUMN_NAMES[MESSAGES])
        return next((each for each in named if each.kind is None), None)

    def _take_messages(self, each: Column, question: FieldSource | None) -> None:
        """Take a column of messages: a conversation with its response, or the turns before one."""
        is_shown = not CONVERSATIONS.isdisjoint(self._used)
        if not is_shown and {"candidate", "instruction"} <= self._claims.fields.keys():
            return  # no field needs it
        if question is not None and question.kind == "text":
            is_said = self._first.are_said(question.texts[0], each.source)
            if not is_said and self._first.last_role(each.source) != "user":
                self._add_history(each.source, question)
                return
        self._refuse_other_records(each)
        self._claims.add_column(MESSAGES, each)

    def _refuse_other_records(self, each: Column) -> None:
        """Refuse messages that some records have instead of the column of the response.

        Raises:
            RecordError: with the flags of both columns.
        """
        response = self._claims.fields.get("candidate")
        if response is None or not response.texts or not self._first.values(response.texts[0]):
            return
        if self._first.stand_apart(response.texts[0], each.source):
            path = response.texts[0].path
            raise RecordError(
                f"some records have the response in {path!r} and others in {each.name!r}; choose "
                f"{flag_of('candidate', path)} or {flag_of(MESSAGES, each.name)}"
            )

    def _history(self) -> Column | None:
        """Return the free column with a usual name of a history, of messages or pairs; None without one.

        Raises:
            RecordError: there are several.
        """
        named = self._claims.usual_columns(COLUMN_NAMES[HISTORY])
        found = [each for each in named if each.kind in ("turns", "data")]
        if len(found) > 1:
            names = " and ".join(repr(each.name) for each in found)
            choices = " or ".join(flag_of(HISTORY, each.name) for each in found)
            raise RecordError(f"{names} are both possible columns for the history; choose {choices}")
        return next(iter(found), None)

    def _add_history(self, history: Source, question: FieldSource) -> None:
        """Take a column of the turns before a question, which has a column of its own."""
        role = "history" if history.kind == "turns" else "pairs"
        before = TurnSource(roles={role: (history,)}, optional=True)
        asked = TurnSource(roles={"user": question.texts})
        self._claims.add(MESSAGES, FieldSource(kind="turns", turns=(before, asked)))
        del self._claims.fields["instruction"]
        self.turns_are_instruction = True

    def _settle_prompt(self) -> None:
        """Decide whether a prompt of messages is the whole conversation, or its turns the instruction."""
        fields = self._claims.fields
        declares_both = {"instruction", MESSAGES} <= self._form.fields.keys()
        if SYSTEM_PROMPT in fields or declares_both:
            self.turns_are_instruction = True
        prompt = fields.get("instruction")
        if prompt is None or prompt.kind != "turns":
            return
        is_answered = "candidate" in fields or self._first.last_role(prompt.texts[0]) == "user"
        if not is_answered:
            del fields["instruction"]
            fields.setdefault(MESSAGES, prompt)
        elif MESSAGES in fields and MESSAGES not in self._flags.columns:
            del fields["instruction"]  # the messages hold the prompt
            self.turns_are_instruction = False
        else:
            self.turns_are_instruction = True

    def _settle_response(self) -> None:
        """Decide whether a response of messages begins with the prompt.

        Raises:
            RecordError: no column has a response, or one follows another turn of the assistant.
        """
        response = self._claims.fields.get("candidate")
        before = self._claims.fields.get(MESSAGES)
        if response is None:
            if before is not None and before.turns and not self._form.has:
                columns = list(self._first.columns)
                reason = missing_fields_reason(["candidate"], columns, self._used, self._flags.columns)
                raise RecordError(reason, RowProblem.MISSING)
            return
        if response.kind == "turns" and response.texts:
            self.responses_hold_prompt = self._first.begin_with_prompt(response.texts[0])
        prompt = self._claims.fields.get("instruction")
        if before is None and prompt is not None and prompt.kind == "turns":
            before = prompt
        if self.responses_hold_prompt or before is None or before.turns:
            return
        if self._first.last_role(before.texts[0]) == "assistant":
            raise RecordError(
                _two_responses(before.texts[0].path, response.texts[0].path), RowProblem.CONVERSATION
            )

    def _settle_pair(self) -> None:
        """Decide whether the two responses of a pair are conversations that begin with the prompt."""
        fields = self._claims.fields
        messages = self._first.columns.get(MESSAGES)
        question = fields.get("instruction")
        if question is not None and question.kind == "text" and MESSAGES not in fields:
            history = self._history()
            if history is not None:
                self._add_history(history.source, question)
        if not {MESSAGES, "instruction"} & fields.keys() and messages is not None:
            if messages.kind == "turns":
                self._claims.add_column(MESSAGES, messages)
        for name in self._judged:
            response = fields.get(name)
            if response is None or response.kind != "turns":
                continue
            is_declared = bool(response.turns)
            self.responses_hold_prompt = is_declared or self._first.begin_with_prompt(response.texts[0])


def _two_responses(messages: str, response: str) -> str:
    """Return that two columns have a response, with the flags of both readings."""
    turn = flag_of("candidate", messages)
    other = " ".join((
        flag_of("candidate", response),
        flag_of("instruction", f"{messages}[-2].content"),
        flag_of("reference", f"{messages}[-1].content"),
    ))  # fmt: skip
    return (
        f"{messages!r} ends with a turn of the assistant, and {response!r} is a response; judge the turn with "
        f"{turn}, or the response with {other}"
    )


def _is_prompt(value: object) -> bool:
    """Return whether a value of `system` is a text for a system, and not the name of one."""
    if not isinstance(value, str):
        return False
    is_sentence = value.count(" ") > 1 and value.rstrip(" ").endswith(_END_OF_SENTENCE)
    return is_sentence or len(value) > _LONGEST_NAME
