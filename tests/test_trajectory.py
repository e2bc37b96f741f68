"""Tests of conversations with tools: what of messages is read, and the text in which a judge reads it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from conversation_rows import ANSWER, REASONED, WHOLE, row_of
from hypothesis import given, settings
from hypothesis import strategies as st
from one_row import as_row

from localjudge import Failure, Row, Rubric, RubricError
from localjudge.rows.inputs import read_rows
from localjudge.rows.messages import read_messages
from localjudge.rows.program_rows import rows_of_program

OPENAI = [
    {"role": "system", "content": "You book trains."},
    {"role": "user", "content": "A train to Oslo, and the weather there."},
    {
        "role": "assistant",
        "content": "I look at both.",
        "reasoning_content": "Two tools.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "trains", "arguments": '{"to": "Oslo"}'}},
            {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": "4 °C\nrain"},
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "07:10"}]},
    {"role": "assistant", "content": "At 07:10; take a coat."},
]
ANTHROPIC = [
    OPENAI[0],
    {"role": "user", "content": [{"type": "text", "text": "A train to Oslo, and the weather there."}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Two tools.", "signature": "x"},
            {"type": "text", "text": "I look at both."},
            {"type": "tool_use", "id": "a", "name": "trains", "input": {"to": "Oslo"}},
            {"type": "tool_use", "id": "b", "name": "weather", "input": {"city": "Oslo"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": "4 °C\nrain"},
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "07:10"}]},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "At 07:10; take a coat."}]},
]
HUGGING_FACE = [
    OPENAI[0],
    OPENAI[1],
    {
        "role": "assistant",
        "content": "<think>\nTwo tools.\n</think>\n\nI look at both.",
        "tool_calls": [
            {"type": "function", "function": {"name": "trains", "arguments": {"to": "Oslo"}}},
            {"name": "weather", "arguments": {"city": "Oslo"}},
        ],
    },
    {"role": "tool", "name": "weather", "content": "4 °C\nrain"},
    {"role": "tool", "name": "trains", "content": "07:10"},
    OPENAI[-1],
]
TEXT = """System:
> You book trains.

User:
> A train to Oslo, and the weather there.

Assistant:
> I look at both.

Assistant, call 1:
> trains {"to": "Oslo"}

Assistant, call 2:
> weather {"city": "Oslo"}

Tool, result of call 2:
> 4 °C
> rain

Tool, result of call 1:
> 07:10

Assistant:
> At 07:10; take a coat."""
THOUGHT = TEXT.replace("Assistant:\n> I look", "Assistant, reasoning:\n> Two tools.\n\nAssistant:\n> I look")


def failure_of(messages: Any, *used: str) -> str:
    failure = as_row({"messages": messages}, "a:1", {}, used)
    assert isinstance(failure, Failure)
    return failure.reason


@pytest.mark.parametrize("messages", [OPENAI, ANTHROPIC, HUGGING_FACE], ids=["openai", "anthropic", "hf"])
def test_every_form_of_messages_is_the_same_conversation(messages: Any) -> None:
    row = row_of(messages, *WHOLE)
    assert row.candidate == TEXT
    assert row.instruction == "A train to Oslo, and the weather there."
    assert row_of(messages, *REASONED).candidate == THOUGHT
    before = row_of(messages, *ANSWER)
    assert (before.candidate, before.fields["conversation"]) == (
        "At 07:10; take a coat.",
        TEXT.removesuffix("\n\nAssistant:\n> At 07:10; take a coat."),
    )


def test_the_older_form_of_a_call_and_other_forms_of_its_arguments_are_read() -> None:
    asked: dict[str, Any] = {"role": "user", "content": "7 * 6?"}
    call = {"name": "times", "arguments": "[7, 6]"}
    older = [
        asked,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "times", "content": "42"},
    ]
    text = "User:\n> 7 * 6?\n\nAssistant, call 1:\n> times [7, 6]\n\nTool, result of call 1:\n> 42"
    assert row_of(older, *WHOLE).candidate == text
    custom = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "custom", "id": "c", "custom": {"name": "times", "input": "[7, 6]"}}],
    }
    assert (
        row_of([asked, custom, {"role": "tool", "tool_call_id": "c", "content": "42"}], *WHOLE).candidate
        == text
    )
    bare = {"role": "assistant", "content": [], "tool_calls": {"function": {"name": "now", "arguments": ""}}}
    assert row_of([asked, bare], *WHOLE).candidate == "User:\n> 7 * 6?\n\nAssistant, call 1:\n> now"
    failed = {"type": "tool_result", "tool_use_id": "u", "is_error": True, "content": "no such city"}
    use = {"type": "tool_use", "id": "u", "name": "weather", "input": {}}
    turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [failed]}]
    assert row_of(turns, *WHOLE).candidate == (
        "Assistant, call 1:\n> weather {}\n\nTool, error of call 1:\n> no such city"
    )


def test_reasoning_is_shown_only_if_the_rubric_asks(tmp_path: Path) -> None:
    for reasoning in ({"reasoning_content": "Hm."}, {"reasoning": "Hm."}):
        turns = [OPENAI[1], {"role": "assistant", "content": "Yes.", **reasoning}]
        assert row_of(turns, *WHOLE).candidate.endswith("Assistant:\n> Yes.")
        assert row_of(turns, *REASONED).candidate.endswith("Assistant, reasoning:\n> Hm.\n\nAssistant:\n> Yes.")
    tagged = [OPENAI[1], {"role": "assistant", "content": "<think>Hm.</think>Yes."}]
    assert row_of(tagged, *WHOLE).candidate.endswith("Assistant:\n> <think>Hm.</think>Yes."), "as it always was"
    assert row_of(tagged, *REASONED).candidate.endswith("Assistant, reasoning:\n> Hm.\n\nAssistant:\n> Yes.")
    later = [*OPENAI[:-1], {"role": "assistant", "content": "I deleted all. </think> Done."}]
    assert "I deleted all." in row_of(later, *WHOLE).candidate, "an answer cannot hide what it says"
    last = row_of(tagged, "conversation_with_reasoning", "candidate")
    assert last.candidate == "Yes."
    assert last.fields["conversation_with_reasoning"].endswith("Assistant, reasoning:\n> Hm.")
    both = tmp_path / "both.toml"
    both.write_text(
        "name = 'b'\naspects = ['flow']\nscale = { lowest = 1, highest = 5 }\n[prompt]\n"
        "template = '{$conversation} {$conversation_with_reasoning} flow 1 to 5'"
    )
    with pytest.raises(RubricError, match=r"stands beside {\$conversation_with_reasoning}; remove one"):
        Rubric.load(both)


def test_conversations_of_several_systems_belong_to_the_same_instruction() -> None:
    other = [*OPENAI[:2], {"role": "assistant", "content": "I cannot."}]
    rows = [row_of(messages, *REASONED) for messages in (OPENAI, ANTHROPIC, other)]
    assert len({row.group for row in rows}) == 1


CALL = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "1"}
DEEP: dict[str, Any] = {}
DEEP["x"] = DEEP


def content(*parts: Any, role: str = "assistant") -> list[Any]:
    return [{"role": role, "content": list(parts)}]


MALFORMED: list[tuple[Any, str]] = [
    ([RESULT], "turn 1 is the result of a call with the id 'a', and has no matching earlier call"),
    ([CALLING, RESULT, RESULT], "turn 3 is the result of a call with the id 'a', and has no matching earlier"),
    ([CALLING, RESULT | {"tool_call_id": "b"}], "turn 2 is the result of a call with the id 'b', and has no"),
    ([{"role": "function", "name": "g", "content": "1"}], "turn 1 is the result of a call of 'g', and has no"),
    ([{"role": "tool", "content": "1"}], "turn 1 is the result of a call, and has no matching earlier call"),
    ([CALLING, CALLING], "turn 2 has a call with the id 'a', which a call without a result has"),
    ([CALLING | {"tool_calls": "f()"}], "turn 1 has a call without the name of its tool"),
    ([CALLING | {"tool_calls": {"a": CALL}}], "turn 1 has a call without the name of its tool"),
    ([CALLING | {"tool_calls": ["f()"]}], "turn 1 has a call without the name of its tool"),
    ([CALLING | {"tool_calls": [{"id": "a"}]}], "turn 1 has a call without the name of its tool"),
    ([CALLING | {"tool_calls": [{"function": {"name": 7}}]}], "turn 1 has a call without the name of its tool"),
    ([CALLING | {"tool_calls": [{"function": {"name": "f", "arguments": {(1, 2): 3}}}]}],
     "turn 1 has arguments that cannot be written as JSON: keys must be"),
    ([CALLING | {"role": "user", "content": "x"}], "turn 1 is the user's and has calls of tools; only"),
    ([CALLING, RESULT | {"content": {"value": 1}}], "turn 2 has content of type dict; it must be text or a"),
    ([CALLING, RESULT | {"content": [{"type": "image", "source": {}}]}], "turn 2 has a part of type image,"),
    (content({"type": "tool_use", "name": "f"}, role="user"), "turn 1 has a part of type tool_use, which is"),
    (content({"type": "tool_result", "content": "1"}), "turn 1 has a part of type tool_result, which is not"),
    (content({"type": "thinking", "thinking": "x"}, role="user"), "turn 1 has a part of type thinking, which"),
    (content({"type": "tool_use", "id": "a"}), "turn 1 has a call without the name of its tool"),
    (content({"type": "tool_result", "tool_use_id": "z"}, role="user"), "a call with the id 'z', and has no"),
    ([{"role": "assistant", "content": None}], "turn 1 has content of type NoneType; it must be text or a"),
    ([{"role": "assistant", "content": "x", "audio": {"id": "1"}}], "turn 1 has audio, which is not supported"),
    (content({"type": "input_audio", "input_audio": {}}, role="user"), "turn 1 has a part of type input_audio"),
    ('[{"role": "assistant", "tool_calls": [{"name": "f", "input": ' + "[" * 5000, "--encoded messages"),
    ([OPENAI[1], CALLING | {"tool_calls": [{"function": {"name": "\ud800"}}]}], "has a lone surrogate"),
    ([OPENAI[1], CALLING | {"tool_calls": [{"function": {"name": "f", "arguments": DEEP}}]}], "nested more"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "reason"), MALFORMED)
def test_a_malformed_trajectory_fails_its_row_in_one_line_that_names_the_turn(
    messages: Any, reason: str
) -> None:
    problem = failure_of(messages, *WHOLE)
    assert reason in problem
    assert len(problem.splitlines()) == 1


def test_a_row_with_a_malformed_trajectory_keeps_its_id_and_system() -> None:
    record = {"id": 7, "generator": "north", "messages": [{"role": "user", "content": 1}]}
    failed = as_row(record, "rows.jsonl:1", {}, WHOLE)
    assert (failed.status, failed.id, failed.system) == ("failed", "7", "north")


def test_a_last_turn_that_calls_a_tool_is_no_response() -> None:
    reason = "the last turn calls a tool; judge the whole conversation, with `rubric` agent"
    assert reason in failure_of([OPENAI[1], CALLING], *ANSWER)
    assert "the last turn is the tool's" in failure_of([OPENAI[1], CALLING, RESULT], *ANSWER)


def test_trajectories_are_read_from_files_and_tables(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pyarrow.Table.from_pylist(
        [{"messages": [turn | {"content": str(turn["content"])} for turn in OPENAI]}]
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(json.dumps(table.to_pylist()[0]))
    rows = [
        *read_rows([str(tmp_path / "a.parquet"), str(tmp_path / "a.jsonl")], used=WHOLE),
        *rows_of_program(pandas.read_parquet(tmp_path / "a.parquet"), WHOLE),
        *rows_of_program(table, WHOLE),
    ]
    assert len(rows) == 4
    assert len({row.digest.hex() if isinstance(row, Row) else row.error for row in rows}) == 1


def test_arrays_of_numpy_anywhere_in_messages_are_lists() -> None:
    numpy = pytest.importorskip("numpy")
    call = {"name": "f", "arguments": {"places": numpy.array([1, 2])}}
    turns = numpy.array([{"role": "assistant", "tool_calls": numpy.array([call, call])}])
    assert row_of(turns, *WHOLE).candidate.endswith('> f {"places": [1, 2]}')
    odd = failure_of([{"role": "assistant", "tool_calls": [{"name": numpy.array(["f", "g"])}]}], *WHOLE)
    assert "turn 1 has a call without the name of its tool" in odd


def test_the_included_rubric_shows_the_whole_trajectory() -> None:
    rubric = Rubric.load("agent")
    assert f"```\n{TEXT}\n```" in rubric.text(row_of(OPENAI, *rubric.fields))
    assert rubric.problems == []


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["call", "result"]),
            st.sampled_from([None, "i", "j", "k"]),
            st.sampled_from(["f", "g"]),
            st.booleans(),
        ),
        max_size=14,
    )
)
def test_a_result_belongs_to_the_first_call_that_it_can_answer(
    said: list[tuple[str, str | None, str, bool]],
) -> None:
    """By the id if both have one, otherwise by the tool if the result names one."""
    waiting: list[tuple[int, str | None, str]] = []
    messages: list[dict[str, Any]] = []
    expected: list[int] = []
    for kind, own, tool, named in said:
        if kind == "call":
            if own in [known for _, known, _ in waiting if known]:
                continue
            number = sum(message["role"] == "assistant" for message in messages) + 1
            waiting.append((number, own, tool))
            messages.append({"role": "assistant", "tool_calls": [{"id": own, "function": {"name": tool}}]})
            continue
        fits = [
            each for each in waiting if (each[1] == own if own and each[1] else not named or each[2] == tool)
        ]
        if fits:
            waiting.remove(fits[0])
            expected.append(fits[0][0])
            messages.append(
                {"role": "tool", "tool_call_id": own, "content": "1"} | ({"name": tool} if named else {})
            )
    if messages:
        blocks = [block for turn in read_messages(messages) for block in turn.blocks]
        assert [block.call for block in blocks if block.kind == "result"] == expected


@pytest.mark.parametrize("ids", [True, False])
def test_many_calls_before_their_results_take_no_longer_each(ids: bool) -> None:
    """Comparisons are counted, because time depends on the machine."""
    count = 3_000
    calls = [{"id": f"c{n}" if ids else None, "function": {"name": "f"}} for n in range(count)]
    results = [{"role": "tool", "tool_call_id": f"c{n}" if ids else None, "content": "1"} for n in range(count)]
    steps = 0

    def count_lines(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        steps += event == "line" and frame.f_code.co_filename.endswith("messages.py")
        return count_lines

    sys.settrace(count_lines)
    try:
        turns = read_messages([{"role": "assistant", "tool_calls": calls}, *results])
    finally:
        sys.settrace(None)
    assert [turn.blocks[0].call for turn in turns[1:]] == [*range(1, count + 1)]
    assert steps < 200 * count
