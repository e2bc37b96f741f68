"""Trajectories of agents: tau-bench, tau²-bench, SWE-agent, mini-SWE-agent and OpenHands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shape_records import (
    ASSISTANT,
    DIALOGUE,
    SYSTEM,
    USER,
    Made,
    Reading,
    Record,
    Said,
    Shape,
    Texts,
    json_array,
    json_document,
    json_lines,
    one_document_each,
)


def worked(texts: Texts, *, policy: bool = True) -> tuple[Said, ...]:
    """Return turns: a request, calls of tools with their results, and the assistant's last text."""
    turns = [Said(SYSTEM, texts.text())] if policy else []
    turns.append(Said(USER, texts.text()))
    for call in range(1, texts.rng.randint(1, 3) + 1):
        arguments = {"user_id": texts.word(), "count": call}
        said = texts.text() if texts.rng.random() < 0.5 else None
        turns.append(Said(ASSISTANT, said, calls=((f"find_{texts.word()}", arguments),)))
        turns.append(Said("tool", json.dumps({"found": texts.word()}), answers=call))
    return (*turns, Said(ASSISTANT, texts.text()))


def reading_of(turns: Sequence[Said], **others: Any) -> Reading:
    """Return the reading of a conversation whose last turn is the assistant's."""
    return Reading((turns[-1].text or "",), turns=tuple(turns[:-1]), **others)


def openai_messages(turns: Sequence[Said]) -> list[Record]:
    """Return turns as OpenAI's messages: arguments are JSON text, an id joins a call with its result."""
    messages: list[Record] = []
    calls = 0
    for turn in turns:
        if turn.answers is not None:
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": f"call_{turn.answers}",
                    "name": "tool",
                    "content": turn.text,
                }
            )
            continue
        message: Record = {"role": turn.role, "content": turn.text}
        if turn.role == ASSISTANT:
            message |= {"function_call": None, "tool_calls": None}
        for name, arguments in turn.calls:
            calls += 1
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call_{calls}", "type": "function", "function": function}]
        messages.append(message)
    return messages


def tau_bench(texts: Texts, number: int) -> Made:
    """A result of a task: `traj` is the conversation, `reward` its label; the policy is the system prompt."""
    turns, reward = worked(texts), float(number % 2)
    record = {
        "task_id": number,
        "reward": reward,
        "info": {
            "task": {
                "user_id": texts.word(),
                "actions": [{"name": "x", "kwargs": {}}],
                "instruction": texts.text(),
            },
            "source": "user",
            "user_cost": 0.1,
        },
        "traj": openai_messages(turns),
        "trial": number % 4,
    }
    return Made(record, (reading_of(turns, columns={"reward": reward}),))


def tau2_bench(texts: Texts, number: int) -> Made:
    """A simulation: calls have an object of arguments, a tool's message has the id of its call."""
    turns, reward = worked(texts, policy=False), float(number % 2)
    messages: list[Record] = []
    calls = 0
    for place, turn in enumerate(turns):
        common = {"turn_idx": place, "timestamp": "2026-01-01T00:00:00"}
        if turn.answers is not None:
            messages.append(
                {
                    "id": f"call_{turn.answers}",
                    "role": "tool",
                    "content": turn.text,
                    "requestor": "assistant",
                    "error": False,
                    **common,
                }
            )
            continue
        message: Record = {"role": turn.role, "content": turn.text, "tool_calls": None, **common, "cost": 0.0}
        for name, arguments in turn.calls:
            calls += 1
            call = {"id": f"call_{calls}", "name": name, "arguments": arguments, "requestor": "assistant"}
            message["tool_calls"] = [call]
        messages.append(message)
    record = {
        "id": texts.word(),
        "task_id": str(number),
        "timestamp": "2026-01-01T00:00:00",
        "start_time": "2026-01-01T00:00:00",
        "end_time": "2026-01-01T00:01:00",
        "duration": 60.0,
        "termination_reason": "user_stop",
        "agent_cost": 0.1,
        "user_cost": 0.1,
        "reward_info": {"reward": reward, "db_check": None, "nl_assertions": None},
        "messages": messages,
        "trial": 0,
        "seed": 7,
    }
    reading = reading_of(turns, columns={"reward": reward}, systems=("north-9",), systems_optional=True)
    return Made(record, (reading,))


def tau2_document(made: Sequence[Made]) -> Record:
    """Return the results of a run: its tasks are a list of objects too."""
    return {
        "timestamp": "2026-01-01T00:00:00",
        "info": {
            "num_trials": 1,
            "agent_info": {"implementation": "llm_agent", "llm": "north-9", "llm_args": {}},
            "user_info": {"implementation": "user_simulator", "llm": "south-1"},
        },
        "tasks": [
            {"id": each.record["task_id"], "description": {"purpose": "made up"}, "user_scenario": {}}
            for each in made
        ],
        "simulations": [each.record for each in made],
    }


def swe_agent(texts: Texts, number: int) -> Made:
    """A `.traj`: `history` is what the model read and wrote; `trajectory` tells the same steps again."""
    turns = worked(texts)
    history = openai_messages(turns)
    for message in history:
        message |= {"agent": "main", "message_type": "observation" if message["role"] == "tool" else "action"}
        if message["role"] == "tool":
            message["tool_call_ids"] = [message.pop("tool_call_id")]
            message["content"] = [{"type": "text", "text": message["content"]}]
    steps = [
        {
            "action": f"{name} x",
            "observation": texts.text(),
            "response": turn.text or "",
            "thought": turn.text or "",
            "state": {"working_dir": "/repo"},
            "execution_time": 0.1,
            "query": history[:2],
        }
        for turn in turns
        for name, _ in turn.calls
    ]
    record = {
        "trajectory": steps,
        "history": history,
        "info": {"exit_status": "submitted", "submission": texts.text(), "model_stats": {"api_calls": 2}},
        "replay_config": "{}",
        "environment": "main",
    }
    return Made(record, (reading_of(turns),))


def swe_agent_text(texts: Texts, number: int) -> Made:
    """A `.traj` of an agent that writes its commands as text: an observation is a turn of the user."""
    turns = [Said(SYSTEM, texts.text()), Said(USER, texts.text())]
    for _ in range(texts.rng.randint(1, 3)):
        turns += [Said(ASSISTANT, f"{texts.text()}\n```\nls {texts.word()}\n```"), Said(USER, texts.text())]
    turns.append(Said(ASSISTANT, f"{texts.text()}\n```\nsubmit\n```"))
    record = {
        "environment": "swe_main",
        "trajectory": [
            {
                "action": "ls\n",
                "observation": texts.text(),
                "response": turn.text,
                "state": "{}",
                "thought": "x",
            }
            for turn in turns
            if turn.role == ASSISTANT
        ],
        "history": [{"role": turn.role, "content": turn.text, "agent": "primary"} for turn in turns],
        "info": {"exit_status": "submitted", "submission": texts.text()},
    }
    return Made(record, (reading_of(turns),))


def mini_swe_agent(texts: Texts, number: int) -> Made:
    """A `.traj.json`: the messages, each with `extra`, what the model's server said, and times."""
    turns = [Said(SYSTEM, texts.text()), Said(USER, texts.text())]
    for _ in range(texts.rng.randint(1, 3)):
        turns += [Said(ASSISTANT, texts.text()), Said(USER, texts.text())]
    turns.append(Said(ASSISTANT, texts.text()))
    name = texts.name()
    record = {
        "info": {
            "model_stats": {"instance_cost": 0.1, "api_calls": 2},
            "config": {"agent": {"system_template": texts.text()}, "model": {"model_name": name}},
            "exit_status": "Submitted",
            "submission": texts.text(),
        },
        "messages": [
            {
                "role": turn.role,
                "content": turn.text,
                "extra": {"timestamp": 1.0, "response": {"choices": [{"message": {"content": turn.text}}]}},
            }
            for turn in turns
        ],
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": texts.word(),
    }
    return Made(record, (reading_of(turns, systems=(name,), systems_optional=True),))


def openhands(texts: Texts, number: int) -> Made:
    """A line of `output.jsonl`: `history` are events; messages, actions and observations are turns."""
    name, task, thought = texts.name(), texts.text(), texts.text()
    command, output, last = f"ls {texts.word()}", texts.text(), texts.text()
    called = {"function_name": "execute_bash", "tool_call_id": "call_1", "total_calls_in_response": 1}
    events = [
        {"id": 0, "source": "user", "message": task, "action": "message", "args": {"content": task}},
        {
            "id": 1,
            "source": "agent",
            "message": f"Running command: {command}",
            "action": "run",
            "args": {"command": command, "thought": thought, "is_input": False},
            "tool_call_metadata": called,
        },
        {
            "id": 2,
            "source": "agent",
            "message": f"Command `{command}` executed with exit code 0.",
            "cause": 1,
            "observation": "run",
            "content": output,
            "extras": {"command": command, "exit_code": 0},
            "tool_call_metadata": called,
            "success": True,
        },
        {
            "id": 3,
            "source": "agent",
            "message": last,
            "action": "finish",
            "args": {"final_thought": last, "outputs": {}, "thought": ""},
        },
    ]
    record = {
        "instance_id": texts.word(),
        "test_result": {"git_patch": texts.text()},
        "instruction": task,
        "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": name}, "max_iterations": 100},
        "history": events,
        "metrics": {"accumulated_cost": 0.1},
        "error": None,
        "instance": {"problem_statement": task},
    }
    reading = Reading(
        (last,),
        instruction=task,
        ordered=(task, thought, command, output, last),
        systems=(name,),
        systems_optional=True,
    )
    return Made(record, (reading,))


def openhands_sdk(texts: Texts, number: int) -> Made:
    """A line of `output.jsonl` of today's benchmarks: each event has a `kind`, messages are in parts."""
    name, task, thought = texts.name(), texts.text(), texts.text()
    command, output, last = f"ls {texts.word()}", texts.text(), texts.text()

    def parts(text: str) -> list[Record]:
        return [{"cache_prompt": False, "type": "text", "text": text, "enable_truncation": True}]

    def message(role: str, text: str) -> Record:
        return {
            "kind": "MessageEvent",
            "id": texts.word(),
            "timestamp": "2026-01-01T00:00:00",
            "source": "user" if role == USER else "agent",
            "llm_message": {"role": role, "content": parts(text), "tool_calls": None},
            "activated_skills": [],
        }

    events = [
        {
            "kind": "SystemPromptEvent",
            "id": texts.word(),
            "source": "agent",
            "system_prompt": {"text": "s"},
            "tools": [],
        },
        message(USER, task),
        {
            "kind": "ActionEvent",
            "id": texts.word(),
            "source": "agent",
            "thought": parts(thought),
            "action": {"kind": "TerminalAction", "command": command},
            "tool_name": "terminal",
            "tool_call_id": "call_1",
            "tool_call": {"id": "call_1", "name": "terminal", "arguments": json.dumps({"command": command})},
        },
        {
            "kind": "ObservationEvent",
            "id": texts.word(),
            "source": "environment",
            "observation": {"kind": "TerminalObservation", "content": parts(output), "is_error": False},
            "tool_name": "terminal",
            "tool_call_id": "call_1",
        },
        message(ASSISTANT, last),
    ]
    record = {
        "instance_id": texts.word(),
        "attempt": 1,
        "test_result": {"git_patch": texts.text()},
        "instruction": task,
        "metadata": {"llm": {"model": name}, "dataset": "made/up"},
        "history": events,
        "metrics": {"accumulated_cost": 0.1},
        "error": None,
        "instance": {"problem_statement": task},
    }
    reading = Reading(
        (last,),
        instruction=task,
        ordered=(task, thought, command, output, last),
        systems=(name,),
        systems_optional=True,
    )
    return Made(record, (reading,))


AGENTS = (
    Shape("tau-bench", tau_bench, json_array("results.json"), read=(DIALOGUE,)),
    Shape("tau2-bench", tau2_bench, json_document("results.json", tau2_document), read=(DIALOGUE,)),
    Shape("SWE-agent", swe_agent, one_document_each(".traj"), read=(DIALOGUE,)),
    Shape("SWE-agent, commands as text", swe_agent_text, one_document_each(".traj"), read=(DIALOGUE,)),
    Shape("mini-SWE-agent", mini_swe_agent, one_document_each(".traj.json"), read=(DIALOGUE,)),
    Shape("OpenHands", openhands, json_lines("output.jsonl"), read=(DIALOGUE,)),
    Shape("OpenHands SDK", openhands_sdk, json_lines("output.jsonl"), read=(DIALOGUE,)),
)
