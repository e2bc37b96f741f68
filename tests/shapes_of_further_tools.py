"""Records of further tools and data sets, from their documentation."""

from __future__ import annotations

from functools import partial
from typing import Any

from shape_records import (
    ANSWER,
    ASSISTANT,
    CHECKED,
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
    json_array,
    json_document,
    json_lines,
    parquet,
    two_files,
)


def judgelm(texts: Texts, number: int) -> Made:
    asked, a, b = texts.text(), texts.text(), texts.text()
    first, second = texts.names()
    record = {
        "question_id": number,
        "score": [{"logprobs": -7.0}, {"logprobs": -5.1}],
        "question_body": asked,
        "answer1_body": a,
        "answer2_body": b,
        "answer1_model_id": first,
        "answer2_model_id": second,
        "answer1_metadata": {"decoding_method": "top_p"},
    }
    return Made(record, (Reading((a, b), instruction=asked, systems=(first, second)),))


def stanford_preferences(texts: Texts, number: int) -> Made:
    """`labels` is 1 if the first response is preferred, and 0 if the second is."""
    asked, a, b = texts.text(), texts.text(), texts.text()
    label = int(number % 3 == 0)
    record = {
        "post_id": texts.word(),
        "domain": "askacademia_train",
        "history": asked,
        "score_A": 9,
        "score_B": 5,
        "human_ref_A": a,
        "human_ref_B": b,
        "labels": label,
        "seconds_difference": 1.0,
    }
    return Made(record, (Reading((a, b), instruction=asked),), "ba"[label])


def safe_rlhf(texts: Texts, number: int) -> Made:
    """It has two labels, which is better and which is safer; a person says which is meant."""
    asked, a, b = texts.text(), texts.text(), texts.text()
    record = {
        "prompt": asked,
        "prompt_source": "x",
        "response_0": a,
        "response_1": b,
        "is_response_0_safe": True,
        "is_response_1_safe": False,
        "better_response_id": number % 2,
        "safer_response_id": 0,
    }
    return Made(record, (Reading((a, b), instruction=asked, columns={"better_response_id": number % 2}),))


def webgpt(texts: Texts, number: int) -> Made:
    asked, a, b = texts.text(), texts.text(), texts.text()
    record = {
        "question": {"dataset": "eli5", "id": str(number), "full_text": asked},
        "quotes_0": {"title": [texts.line()], "extract": [texts.text()]},
        "answer_0": a,
        "score_0": 1.0,
        "quotes_1": {"title": [], "extract": []},
        "answer_1": b,
        "score_1": -1.0,
    }
    return Made(record, (Reading((a, b), instruction=asked),))


def summaries(texts: Texts, number: int) -> Made:
    asked, a, b = texts.text(), texts.text(), texts.text()
    choice = int(number % 3 == 0)
    record = {
        "info": {"id": texts.word(), "post": asked, "title": texts.line()},
        "summaries": [{"text": a, "policy": "ref", "note": "ok"}, {"text": b, "policy": "sup2", "note": None}],
        "choice": choice,
        "worker": "w",
        "batch": "batch3",
        "extra": {"confidence": 4},
    }
    return Made(record, (Reading((a, b), instruction=asked, systems=("ref", "sup2")),), "ab"[choice])


def rm_bench(texts: Texts, number: int) -> Made:
    """Each of three styles of the chosen response beside each of the rejected one."""
    asked = texts.text()
    chosen, rejected = ([texts.text() for _ in range(3)] for _ in range(2))
    record = {"id": number, "prompt": asked, "chosen": chosen, "rejected": rejected, "domain": "chat"}
    return Made(record, tuple(Reading((a, b), instruction=asked) for a in chosen for b in rejected), "a")


def nectar(texts: Texts, number: int) -> Made:
    asked, said = f"\n\nHuman: {texts.line()}\n\nAssistant: ", [texts.text() for _ in range(3)]
    answers = [{"answer": text, "model": f"m{n}", "rank": n + 1.0} for n, text in enumerate(said)]
    record = {"prompt": asked, "answers": answers, "turns": 1, "num_responses": 3, "good_natured": True}
    readings = (Reading((text,), instruction=asked, systems=(f"m{n}",)) for n, text in enumerate(said))
    return Made(record, tuple(readings))


def opencompass(texts: Texts, number: int, *, listed: bool) -> Made:
    asked, said, gold = texts.text(), texts.text(), texts.line()
    prompt: Any = [{"role": "HUMAN", "prompt": asked}] if listed else asked
    record = {"origin_prompt": prompt, "prediction": said, "gold": gold}
    return Made(record, (Reading((said,), instruction=asked, reference=gold),))


def helm(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    prompt, right = f"Q: {asked}\nA:", {"output": {"text": texts.line()}, "tags": ["correct"]}
    record = {
        "instance": {"input": {"text": asked}, "references": [right], "split": "test", "id": f"id{number}"},
        "train_trial_index": 0,
        "request": {"model": "org/north", "prompt": prompt, "temperature": 0.0},
        "result": {"success": True, "completions": [{"text": said, "logprob": 0, "tokens": []}]},
    }
    return Made(record, (Reading((said,), instruction=prompt, systems=("org/north",)),))


def lighteval(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    record = {
        "doc": {"query": asked, "choices": [texts.line()], "gold_index": 0, "task_name": "x"},
        "model_response": {"text": [said], "input_tokens": [1]},
        "metric": {"em": 0.0},
    }
    return Made(record, (Reading((said,), instruction=asked),))


def openai_evals(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    record = {
        "run_id": "r",
        "event_id": number,
        "sample_id": f"x.dev.{number}",
        "type": "sampling",
        "data": {"prompt": [{"role": "user", "content": asked}], "sampled": [said]},
        "created_at": "2026",
    }
    return Made(record, (Reading((said,), instruction=asked),))


def humaneval(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    problem = {"prompt": asked, "entry_point": "f", "canonical_solution": texts.text(), "test": texts.text()}
    task = {"task_id": f"HumanEval/{number}"}
    return Made(task | {"completion": said}, (Reading((said,), instruction=asked),), beside=task | problem)


def wildbench(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    record = {
        "session_id": texts.word(),
        "chat_history": [asked],
        "model_input": f"<user>{asked}<assistant>",
        "output": [said],
        "generator": "north-1",
        "configs": {"engine": "vllm"},
    }
    return Made(record, (Reading((said,), instruction=asked, systems=("north-1",)),))


def livecodebench(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    record = {
        "question_title": "x",
        "question_content": asked,
        "question_id": str(number),
        "difficulty": "easy",
        "output_list": [said],
        "code_list": ["c"],
    }
    return Made(record, (Reading((said,), instruction=asked),))


def phoenix(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    record = {
        "name": "llm",
        "span_kind": "LLM",
        "attributes.input.value": asked,
        "attributes.output.value": said,
        "attributes.llm.model_name": "m",
        "context.span_id": texts.word(),
    }
    return Made(record, (Reading((said,), instruction=asked, systems=("m",)),))


def braintrust(texts: Texts, number: int, *, inner: bool) -> Made:
    asked, said, gold = texts.text(), texts.text(), texts.line()
    record = {
        "id": texts.word(),
        "span_id": "s",
        "input": {"question": asked} if inner else asked,
        "output": {"answer": said} if inner else said,
        "expected": {"answer": gold} if inner else gold,
        "scores": {"Factuality": 0.6},
        "metadata": {},
        "tags": None,
    }
    return Made(record, (Reading((said,), instruction=asked, reference=gold),))


def gemini_batch(texts: Texts, number: int) -> Made:
    asked, said = texts.text(), texts.text()
    answer = {"content": {"role": "model", "parts": [{"text": said}]}, "finishReason": "STOP"}
    record = {
        "key": str(number),
        "request": {"contents": [{"role": "user", "parts": [{"text": asked}]}]},
        "response": {"candidates": [answer], "modelVersion": "g"},
    }
    return Made(record, (Reading((said,), instruction=asked, systems=("g",)),))


def anthropic_batch(texts: Texts, number: int) -> Made:
    asked, said, prompt = texts.text(), texts.text(), texts.text()
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [{"type": "text", "text": said}],
        "stop_reason": "end_turn",
    }
    params = {"model": "c", "max_tokens": 9, "system": prompt, "messages": [{"role": "user", "content": asked}]}
    own = {"custom_id": f"r{number}"}
    record = own | {"result": {"type": "succeeded", "message": message}}
    turns = (Said(SYSTEM, prompt), Said(USER, asked))
    return Made(record, (Reading((said,), turns=turns, systems=("c",)),), beside=own | {"params": params})


def bedrock_batch(texts: Texts, number: int) -> Made:
    first, reply, asked, said = (texts.text() for _ in range(4))
    turns = (Said(USER, first), Said(ASSISTANT, reply), Said(USER, asked))
    messages = [{"role": turn.role, "content": [{"type": "text", "text": turn.text}]} for turn in turns]
    record = {
        "recordId": str(number),
        "modelInput": {"anthropic_version": "x", "max_tokens": 9, "messages": messages},
        "modelOutput": {"model": "c", "role": "assistant", "content": [{"type": "text", "text": said}]},
    }
    return Made(record, (Reading((said,), turns=turns, systems=("c",)),))


def gold_alone(texts: Texts, number: int) -> Made:
    """GSM8K as it is published: the answer is what is right, and nothing is there to judge."""
    return Made({"question": texts.text(), "answer": f"{texts.text()}\n#### 4"})


def states(made: Any) -> Any:
    return {"adapter_spec": {"model": "org/north"}, "request_states": [each.record for each in made]}


def by_number(made: Any) -> Any:
    return {str(number): each.record for number, each in enumerate(made)}


FURTHER = (
    Shape("JudgeLM", judgelm, json_lines("judgelm_val_5k.jsonl"), (PAIR,), (ANSWER,)),
    Shape("SHP", stanford_preferences, json_lines("shp.jsonl"), (PAIR,), (ANSWER,), labels=True),
    Shape("PKU-SafeRLHF", safe_rlhf, json_lines("train.jsonl"), (PAIR,), (ANSWER,)),
    Shape("WebGPT comparisons", webgpt, json_lines("comparisons.jsonl"), (PAIR,), (ANSWER,)),
    Shape("OpenAI summaries", summaries, json_lines("batch3.jsonl"), (PAIR,), (ANSWER,), labels=True),
    Shape("RM-Bench", rm_bench, json_array("total_dataset.json"), (PAIR,)),
    Shape("Nectar", nectar, json_lines("nectar.jsonl")),
    *(
        Shape(
            name,
            partial(opencompass, listed=listed),
            json_document("predictions.json", by_number),
            (ANSWER, GRADED),
        )
        for name, listed in (("OpenCompass predictions", False), ("OpenCompass predictions of messages", True))
    ),
    Shape("HELM request states", helm, json_document("scenario_state.json", states), (ANSWER,), (GRADED,)),
    Shape("lighteval details", lighteval, parquet("details.parquet"), (ANSWER,), (GRADED,)),
    Shape("OpenAI evals log", openai_evals, json_lines("log.jsonl"), (ANSWER, DIALOGUE)),
    Shape("HumanEval samples", humaneval, two_files("samples.jsonl", "HumanEval.jsonl")),
    Shape("WildBench outputs", wildbench, json_array("north-1.json")),
    Shape("LiveCodeBench outputs", livecodebench, json_array("Scenario.codegeneration.json")),
    Shape("Phoenix spans", phoenix, parquet("spans.parquet")),
    *(
        Shape(name, partial(braintrust, inner=inner), json_lines("experiment.jsonl"), (ANSWER, GRADED))
        for name, inner in (("Braintrust experiment", False), ("Braintrust experiment of objects", True))
    ),
    Shape("Gemini batch", gemini_batch, json_lines("predictions.jsonl")),
    Shape("Anthropic batch", anthropic_batch, two_files("results.jsonl", "requests.jsonl"), (ANSWER, DIALOGUE)),
    Shape("Bedrock batch", bedrock_batch, json_lines("records.jsonl.out.jsonl"), (ANSWER, DIALOGUE)),
    Shape("GSM8K alone", gold_alone, json_lines("test.jsonl"), (), (ANSWER, GRADED, DIALOGUE, CHECKED)),
)
"""All of them."""
