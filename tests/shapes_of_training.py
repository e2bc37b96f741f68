"""Records of tools that train: TRL, verl, OpenRLHF, and the forms that LLaMA-Factory reads."""

from __future__ import annotations

import json
from typing import Any

from shape_records import (
    ANSWER,
    ASSISTANT,
    DIALOGUE,
    GRADED,
    PAIR,
    SYSTEM,
    USER,
    Made,
    Reading,
    Said,
    Shape,
    Texts,
    chat,
    dialogue,
    json_array,
    json_lines,
    last_of,
    parquet,
)

# --- TRL, "Dataset formats and types": standard (text) and conversational forms of each type.


def trl_prompt_completion(texts: Texts, number: int) -> Made:
    prompt, completion = texts.text(), texts.maybe(texts.text(), 0.9)
    return Made(
        texts.shuffled({"prompt": prompt, "completion": completion}),
        (Reading((completion,), instruction=prompt),),
    )


def trl_conversational_completion(texts: Texts, number: int) -> Made:
    turns = dialogue(texts, texts.rng.randint(1, 3), system=texts.rng.random() < 0.4)
    answer = texts.text()
    record = {"prompt": chat(*turns), "completion": chat(Said(ASSISTANT, answer))}
    return Made(texts.shuffled(record), (Reading((answer,), turns=turns),))


def trl_preference(texts: Texts, number: int) -> Made:
    prompt, chosen, rejected = texts.text(), texts.text(), texts.text()
    record = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    return Made(texts.shuffled(record), (Reading((chosen, rejected), instruction=prompt),), label="a")


def trl_conversational_preference(texts: Texts, number: int) -> Made:
    turns = dialogue(texts, texts.rng.randint(1, 2))
    chosen, rejected = texts.text(), texts.text()
    record = {
        "prompt": chat(*turns),
        "chosen": chat(Said(ASSISTANT, chosen)),
        "rejected": chat(Said(ASSISTANT, rejected)),
    }
    return Made(texts.shuffled(record), (Reading((chosen, rejected), turns=turns),), label="a")


def trl_implicit_preference(texts: Texts, number: int) -> Made:
    """The prompt is implicit: both conversations begin with the same turns, as `extract_prompt` takes them."""
    turns = dialogue(texts, texts.rng.randint(1, 2))
    chosen, rejected = texts.text(), texts.text()
    record: dict[str, Any] = {
        "chosen": chat(*turns, Said(ASSISTANT, chosen)),
        "rejected": chat(*turns, Said(ASSISTANT, rejected)),
    }
    if number % 2:  # as UltraFeedback binarized has it: the prompt is there too, as a text
        record |= {"prompt": last_of(turns)} if len(turns) == 1 else {}
    return Made(texts.shuffled(record), (Reading((chosen, rejected), turns=turns),), label="a")


def trl_kto(texts: Texts, number: int) -> Made:
    """A label beside one completion: it is desirable or not; no second response exists."""
    prompt, completion, label = texts.text(), texts.text(), texts.rng.random() < 0.5
    record = {"prompt": prompt, "completion": completion, "label": label}
    return Made(texts.shuffled(record), (Reading((completion,), instruction=prompt, columns={"label": label}),))


def trl_conversational_kto(texts: Texts, number: int) -> Made:
    turns, answer, label = dialogue(texts, 1), texts.text(), texts.rng.random() < 0.5
    record = {"prompt": chat(*turns), "completion": chat(Said(ASSISTANT, answer)), "label": label}
    return Made(texts.shuffled(record), (Reading((answer,), turns=turns, columns={"label": label}),))


def trl_prompt_only(texts: Texts, number: int) -> Made:
    prompt = texts.text() if number % 2 else chat(*dialogue(texts, 1))
    return Made({"prompt": prompt})


def trl_completions(texts: Texts, number: int) -> Made:
    """What GRPO's `log_completions` saves: each reward has a column of its name."""
    turns, answer, reward = dialogue(texts, 1), texts.text(), round(texts.rng.random(), 3)
    record = {
        "step": number,
        "prompt": chat(*turns),
        "completion": chat(Said(ASSISTANT, answer)),
        "accuracy_reward": reward,
        "advantage": round(texts.rng.uniform(-1, 1), 3),
    }
    return Made(record, (Reading((answer,), turns=turns, columns={"accuracy_reward": reward}),))


# --- verl and OpenRLHF


def verl_record(texts: Texts, number: int) -> tuple[dict[str, object], tuple[Said, ...], str]:
    turns = dialogue(texts, 1, system=texts.rng.random() < 0.4)
    truth = texts.line()
    record: dict[str, object] = {
        "data_source": "made/up",
        "prompt": chat(*turns),
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        # `extra_info.answer` is the worked solution and `question` the question before a suffix is added to it:
        # the prompt is what the model read, and `ground_truth` what the reward compares with.
        "extra_info": {"split": "test", "index": number, "answer": texts.text(), "question": texts.text()},
    }
    return record, turns, truth


def verl_prompts(texts: Texts, number: int) -> Made:
    return Made(verl_record(texts, number)[0])


def verl_generations(texts: Texts, number: int) -> Made:
    """What verl's generation writes: the data set and a column `responses`, a list of the samples."""
    record, turns, truth = verl_record(texts, number)
    answers = [texts.text() for _ in range(2)]
    return Made(
        {**record, "responses": answers},
        tuple(Reading((answer,), turns=turns, reference=truth) for answer in answers),
    )


def verl_rollouts(texts: Texts, number: int) -> Made:
    """What `trainer.rollout_data_dir` gets: `input` is the prompt's text, `gts` the ground truth."""
    prompt, answer, truth, score = texts.text(), texts.text(), texts.line(), float(texts.rng.randrange(2))
    record = {
        "input": prompt,
        "output": answer,
        "gts": truth,
        "score": score,
        "step": number // 4,
        "acc": score,
    }
    return Made(
        texts.shuffled(record),
        (Reading((answer,), instruction=prompt, reference=truth, columns={"score": score}),),
    )


def openrlhf_supervised(texts: Texts, number: int) -> Made:
    """`--data.input_key input --data.output_key output`: a prompt and its response."""
    prompt, answer = texts.text(), texts.text()
    return Made({"input": prompt, "output": answer}, (Reading((answer,), instruction=prompt),))


def openrlhf_preference(texts: Texts, number: int) -> Made:
    """`chosen` and `rejected` are conversations with the prompt's turns in front, beside their scores."""
    turns, chosen, rejected = dialogue(texts, 1), texts.text(), texts.text()
    record = {
        "source": "made-up",
        "chosen": chat(*turns, Said(ASSISTANT, chosen)),
        "chosen_score": 4.5,
        "rejected": chat(*turns, Said(ASSISTANT, rejected)),
        "rejected_score": 2.0,
    }
    return Made(record, (Reading((chosen, rejected), turns=turns),), label="a")


# --- The forms that LLaMA-Factory reads


def joined(instruction: str, given: str) -> str | tuple[str, ...]:
    """Return the instruction with its input: one new line between them, or an empty line."""
    return (f"{instruction}\n{given}", f"{instruction}\n\n{given}") if given else instruction


def alpaca(texts: Texts, number: int) -> Made:
    instruction, given, output = texts.text(), texts.maybe(texts.text(), 0.6), texts.text()
    record: dict[str, Any] = {"instruction": instruction, "input": given, "output": output}
    if number % 4 == 1:  # as files of LLaMA-Factory have them: empty, or null
        record |= {"system": "", "history": []} if number % 8 == 1 else {"system": None, "history": None}
    if number % 4 == 2 and not given:
        del record["input"]
    return Made(texts.shuffled(record), (Reading((output,), instruction=joined(instruction, given)),))


def alpaca_with_text(texts: Texts, number: int) -> Made:
    """The published set also has `text`, the whole training prompt with its answer: it is neither."""
    instruction, given, output = texts.text(), texts.maybe(texts.text(), 0.6), texts.text()
    text = f"Below is an instruction.\n\n### Instruction:\n{instruction}\n\n### Response:\n{output}"
    record = {"instruction": instruction, "input": given, "output": output, "text": text}
    return Made(record, (Reading((output,), instruction=joined(instruction, given)),))


def alpaca_with_history(texts: Texts, number: int) -> Made:
    """`system` is a prompt, not the name of a system, and `history` the earlier rounds."""
    instruction, output = texts.text(), texts.text()
    system, rounds = texts.text(), [[texts.text(), texts.text()] for _ in range(texts.rng.randrange(3))]
    turns = [Said(SYSTEM, system)]
    for asked, answered in rounds:
        turns += [Said(USER, asked), Said(ASSISTANT, answered)]
    record = {"instruction": instruction, "input": "", "output": output, "system": system, "history": rounds}
    return Made(texts.shuffled(record), (Reading((output,), turns=(*turns, Said(USER, instruction))),))


def alpaca_preference(texts: Texts, number: int) -> Made:
    instruction, given = texts.text(), texts.maybe(texts.text(), 0.6)
    chosen, rejected = texts.text(), texts.text()
    record = {"instruction": instruction, "input": given, "chosen": chosen, "rejected": rejected}
    return Made(record, (Reading((chosen, rejected), instruction=joined(instruction, given)),), label="a")


SHARE_ROLES = {USER: "human", ASSISTANT: "gpt", SYSTEM: "system"}


def shared(*turns: Said) -> list[dict[str, object]]:
    """Return turns as ShareGPT's `from` and `value`."""
    return [{"from": SHARE_ROLES[turn.role], "value": turn.text} for turn in turns]


def sharegpt_of_roles(texts: Texts, number: int) -> Made:
    """Some files have the roles `user`, `assistant`, `chatgpt` and further keys in a turn."""
    turns, answer = dialogue(texts, texts.rng.randint(1, 2)), texts.text()
    roles = {USER: "user", ASSISTANT: ("assistant", "chatgpt")[number % 2]}
    conversation = [
        {"from": roles[turn.role], "value": turn.text, "weight": None, "markdown": None}
        for turn in (*turns, Said(ASSISTANT, answer))
    ]
    return Made({"id": number, "conversations": conversation, "tools": ""}, (Reading((answer,), turns=turns),))


def sharegpt(texts: Texts, number: int) -> Made:
    turns, answer = dialogue(texts, texts.rng.randint(1, 3), system=texts.rng.random() < 0.3), texts.text()
    record = {"id": f"conv_{number}", "conversations": shared(*turns, Said(ASSISTANT, answer))}
    return Made(texts.shuffled(record), (Reading((answer,), turns=turns),))


def sharegpt_with_system(texts: Texts, number: int) -> Made:
    """The system prompt in a column of its own is the first turn."""
    turns, answer, system = dialogue(texts, texts.rng.randint(1, 2)), texts.text(), texts.text()
    record = {"conversations": shared(*turns, Said(ASSISTANT, answer)), "system": system}
    return Made(texts.shuffled(record), (Reading((answer,), turns=(Said(SYSTEM, system), *turns)),))


def sharegpt_preference(texts: Texts, number: int) -> Made:
    turns, chosen, rejected = dialogue(texts, texts.rng.randint(1, 2)), texts.text(), texts.text()
    record = {
        "conversations": shared(*turns),
        "chosen": {"from": "gpt", "value": chosen},
        "rejected": {"from": "gpt", "value": rejected},
    }
    return Made(texts.shuffled(record), (Reading((chosen, rejected), turns=turns),), label="a")


def sharegpt_unanswered(texts: Texts, number: int) -> Made:
    """The last turn is the user's: there is no response."""
    return Made({"conversations": shared(*dialogue(texts, texts.rng.randint(1, 2)))})


def glaive_as_sharegpt(texts: Texts, number: int) -> Made:
    """LLaMA-Factory's Glaive file: `function_call` and `observation` turns, the tools as JSON text."""
    asked, answer, result = texts.text(), texts.text(), json.dumps({"value": texts.word()})
    name, arguments = f"get_{texts.word()}", {"city": texts.word(), "days": number}
    tools = json.dumps([{"name": name, "description": texts.line(), "parameters": {"type": "object"}}])
    record = {
        "conversations": [
            {"from": "human", "value": asked},
            {"from": "function_call", "value": json.dumps({"name": name, "arguments": arguments})},
            {"from": "observation", "value": result},
            {"from": "gpt", "value": answer},
        ],
        "tools": tools,
    }
    turns = (
        Said(USER, asked),
        Said(ASSISTANT, None, calls=((name, arguments),)),
        Said("tool", result, answers=1),
    )
    return Made(texts.shuffled(record), (Reading((answer,), instruction=asked, turns=turns),))


def glaive(texts: Texts, number: int) -> Made:
    """glaive-function-calling-v2: all turns in one text; `system` begins with "SYSTEM: "."""
    asked, answer, result = texts.line(), texts.line(), json.dumps({"value": texts.word()})
    name, arguments = f"get_{texts.word()}", json.dumps({"city": texts.word()})
    system = f"You are a helpful assistant. {texts.line()}"
    called = f"<functioncall> {json.dumps({'name': name})[:-1]}, \"arguments\": '{arguments}'}} <|endoftext|>"
    text = (
        f"USER: {asked}\n\n\nASSISTANT: {called}\n\n\nFUNCTION RESPONSE: {result}\n\n\n"
        f"ASSISTANT: {answer} <|endoftext|>\n\n\n"
    )
    turns = (
        Said(SYSTEM, system),
        Said(USER, asked),
        Said(ASSISTANT, None, calls=((name, json.loads(arguments)),)),
        Said("tool", result, answers=1),
    )
    return Made(
        {"system": f"SYSTEM: {system}", "chat": text}, (Reading((answer,), instruction=asked, turns=turns),)
    )


TRAINING = (
    Shape("TRL prompt and completion", trl_prompt_completion, json_lines("train.jsonl"), refuse=(GRADED,)),
    Shape(
        "TRL prompt and completion, conversational",
        trl_conversational_completion,
        parquet("train.parquet"),
        read=(ANSWER, DIALOGUE),
        refuse=(GRADED,),
    ),
    Shape(
        "TRL preference", trl_preference, json_lines("train.jsonl", ascii_only=True), read=(PAIR,), labels=True
    ),
    Shape(
        "TRL preference, conversational",
        trl_conversational_preference,
        json_lines("train.jsonl"),
        read=(PAIR,),
        labels=True,
    ),
    Shape(
        "TRL preference, implicit prompt",
        trl_implicit_preference,
        json_lines("a.jsonl"),
        read=(PAIR,),
        labels=True,
    ),
    Shape("TRL KTO", trl_kto, json_lines("train.jsonl"), refuse=(PAIR, GRADED)),
    Shape(
        "TRL KTO, conversational",
        trl_conversational_kto,
        parquet("t.parquet"),
        read=(ANSWER, DIALOGUE),
        refuse=(PAIR,),
    ),
    Shape(
        "TRL prompt only", trl_prompt_only, json_lines("train.jsonl"), read=(), refuse=(ANSWER, PAIR, GRADED)
    ),
    Shape(
        "TRL GRPO completions", trl_completions, parquet("completions_00001.parquet"), read=(ANSWER, DIALOGUE)
    ),
    Shape("verl data set", verl_prompts, parquet("test.parquet"), read=(), refuse=(ANSWER, GRADED, DIALOGUE)),
    Shape("verl generations", verl_generations, parquet("gen.parquet"), read=(ANSWER, GRADED, DIALOGUE)),
    Shape("verl rollouts", verl_rollouts, json_lines("7.jsonl"), read=(ANSWER, GRADED)),
    Shape("OpenRLHF input and output", openrlhf_supervised, parquet("train.parquet"), refuse=(GRADED,)),
    Shape("OpenRLHF preference", openrlhf_preference, parquet("train.parquet"), read=(PAIR,), labels=True),
    Shape("Alpaca", alpaca, json_array("alpaca.json"), refuse=(GRADED,)),
    Shape("Alpaca with text", alpaca_with_text, parquet("train.parquet"), refuse=(GRADED,)),
    Shape("Alpaca with history", alpaca_with_history, json_array("alpaca.json"), read=(ANSWER, DIALOGUE)),
    Shape("Alpaca preference", alpaca_preference, json_array("dpo.json"), read=(PAIR,), labels=True),
    Shape("ShareGPT", sharegpt, json_array("sharegpt.json"), read=(ANSWER, DIALOGUE), refuse=(GRADED,)),
    Shape("ShareGPT, other roles", sharegpt_of_roles, json_lines("s.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape("ShareGPT with system", sharegpt_with_system, json_lines("s.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape("ShareGPT preference", sharegpt_preference, json_array("dpo.json"), read=(PAIR,), labels=True),
    Shape("ShareGPT without an answer", sharegpt_unanswered, json_array("s.json"), read=(), refuse=(ANSWER,)),
    Shape("Glaive as ShareGPT", glaive_as_sharegpt, json_array("glaive.json"), read=(ANSWER, DIALOGUE)),
    Shape("Glaive function calling", glaive, json_lines("glaive.jsonl"), read=(ANSWER, DIALOGUE)),
)
