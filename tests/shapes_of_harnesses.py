"""Records of harnesses, of their data sets, and of tools that record what an application answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shape_records import (
    ANSWER,
    ASSISTANT,
    DIALOGUE,
    GRADED,
    GROUNDED,
    PAIR,
    SYSTEM,
    USER,
    Made,
    Reading,
    Record,
    Said,
    Shape,
    Texts,
    chat,
    dialogue,
    json_array,
    json_document,
    json_lines,
    parquet,
    sheet,
    two_files,
    written,
)

# --- lm-evaluation-harness, `--log_samples`


def lm_eval_sample(texts: Texts, number: int, resps: list[Any], filtered: Any, **others: Any) -> Record:
    question = texts.text()
    return {
        "doc_id": number,
        "doc": {"question": question, "answer": texts.text(), "id": texts.word()},
        "target": texts.line(),
        "arguments": {
            "gen_args_0": {
                "arg_0": f"Question: {question}\nAnswer:",
                "arg_1": {"until": ["\n\n"], "do_sample": False, "temperature": 0.0},
            }
        },
        "resps": resps,
        "filtered_resps": filtered,
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": "d" * 8,
        "prompt_hash": "e" * 8,
        "target_hash": "f" * 8,
        **others,
    }


def lm_eval_reading(record: Record, response: str) -> Reading:
    """The prompt that was sent is the instruction; the question of the document, if it has one, is right too.

    `filtered_resps` is what a filter left of the response for the metric, often a number: the response is in
    `resps`.
    """
    prompt = record["arguments"]["gen_args_0"]["arg_0"]
    return Reading(
        (response,),
        instruction=(prompt, record["doc"]["question"]),
        reference=record["target"],
        columns={"exact_match": record["exact_match"]},
    )


def lm_eval(texts: Texts, number: int) -> Made:
    response = texts.text()
    record = lm_eval_sample(texts, number, [[response]], [response], exact_match=float(number % 2))
    return Made(record, (lm_eval_reading(record, response),))


def lm_eval_chat(texts: Texts, number: int) -> Made:
    """With `--apply_chat_template` on a server of chat completions: a list of one, the JSON of the messages."""
    response, turns = texts.text(), dialogue(texts, 1 + number % 2, system=number % 3 == 0)
    record = lm_eval_sample(texts, number, [[response]], [response], exact_match=1.0)
    asked = [{**message, "type": "text"} if number % 2 else message for message in chat(*turns)]
    record["arguments"]["gen_args_0"]["arg_0"] = [json.dumps(asked)]
    reading = Reading(
        (response,), turns=turns, instruction=record["doc"]["question"], reference=record["target"]
    )
    return Made(record, (reading,))


def lm_eval_filtered(texts: Texts, number: int) -> Made:
    """GSM8K's `flexible-extract`: the filter left a number."""
    response = texts.text()
    record = lm_eval_sample(texts, number, [[response]], [str(number)], exact_match=float(number % 2))
    record["filter"] = "flexible-extract"
    return Made(record, (lm_eval_reading(record, response),))


def lm_eval_repeats(texts: Texts, number: int) -> Made:
    """`repeats: 2`: each response is a row of its own."""
    responses = [texts.text(), texts.text()]
    record = lm_eval_sample(texts, number, [responses], [responses[0]], exact_match=0.0)
    return Made(record, tuple(lm_eval_reading(record, response) for response in responses))


def lm_eval_choices(texts: Texts, number: int) -> Made:
    """Log-likelihoods of choices: the model wrote no text."""
    resps = [[["-12.5", "False"]], [["-3.25", "True"]]]
    record = lm_eval_sample(texts, number, resps, [["-12.5", "False"], ["-3.25", "True"]], acc=1.0)
    record["arguments"] = {
        f"gen_args_{place}": {"arg_0": texts.text(), "arg_1": f" {texts.word()}"} for place in range(2)
    }
    return Made(record)


# --- OpenAI


def completion(texts: Texts, model: str, answers: Sequence[str]) -> Record:
    return {
        "id": f"chatcmpl-{texts.word()}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": model,
        "choices": [
            {
                "index": place,
                "message": {"role": "assistant", "content": answer, "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
            for place, answer in enumerate(answers)
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        "system_fingerprint": None,
    }


def response_object(texts: Texts, model: str, answer: str, *, reasoning: bool = False) -> Record:
    """Return an object of the Responses API; its `output` may begin with an item of reasoning."""
    items: list[Record] = [{"id": texts.word(), "type": "reasoning", "summary": []}] if reasoning else []
    items.append(
        {
            "id": f"msg_{texts.word()}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": answer, "annotations": [], "logprobs": []}],
        }
    )
    return {
        "id": f"resp_{texts.word()}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "completed",
        "error": None,
        "instructions": None,
        "model": model,
        "output": items,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tools": [],
        "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
    }


def batch_lines(custom_id: str, url: str, asked: Record, answered: Record | None) -> tuple[Record, Record]:
    """Return a line of a batch's output, and the line of its input."""
    output = {
        "id": f"batch_req_{custom_id}",
        "custom_id": custom_id,
        "response": None if answered is None else {"status_code": 200, "request_id": "r", "body": answered},
        "error": {"code": "batch_expired", "message": "made up"} if answered is None else None,
    }
    return output, {"custom_id": custom_id, "method": "POST", "url": url, "body": asked}


def openai_batch(texts: Texts, number: int) -> Made:
    """The output is joined with the input by `custom_id`; a request that failed has no body."""
    model, turns = texts.name(), dialogue(texts, texts.rng.randint(1, 2), system=texts.rng.random() < 0.5)
    answers = [texts.text() for _ in range(2 if number % 5 == 0 else 1)]
    failed = number % 7 == 3
    answered = None if failed else completion(texts, model, answers)
    asked = {"model": model, "messages": chat(*turns), "max_completion_tokens": 100}
    output, beside = batch_lines(f"request-{number}", "/v1/chat/completions", asked, answered)
    if number % 14 == 3:  # refused by the server: the body is an error
        body = {"error": {"message": texts.text(), "type": "invalid_request_error", "code": None}}
        output |= {"response": {"status_code": 400, "request_id": "r", "body": body}, "error": None}
    readings = [] if failed else [Reading((answer,), turns=turns, systems=(model,)) for answer in answers]
    return Made(output, tuple(readings), beside=beside)


def openai_batch_of_responses(texts: Texts, number: int) -> Made:
    """A batch of `/v1/responses`: `input` is a text or a list of items, `instructions` the system prompt."""
    model, answer, asked = texts.name(), texts.text(), texts.text()
    body: Record = {"model": model, "input": asked}
    turns: tuple[Said, ...] = (Said(USER, asked),)
    if number % 2:
        body["input"] = [{"role": "user", "content": [{"type": "input_text", "text": asked}]}]
        body["instructions"] = texts.text()
        turns = (Said(SYSTEM, body["instructions"]), *turns)
    output, beside = batch_lines(
        f"request-{number}",
        "/v1/responses",
        body,
        response_object(texts, model, answer, reasoning=number % 3 == 0),
    )
    return Made(output, (Reading((answer,), turns=turns, systems=(model,)),), beside=beside)


def chat_completions(texts: Texts, number: int) -> Made:
    """Completions alone: what was asked is not in them."""
    return Made(completion(texts, texts.name(), [texts.text()]))


def requests_and_completions(texts: Texts, number: int) -> Made:
    """What a client logs: the request beside the completion."""
    model, turns, answer = texts.name(), dialogue(texts, texts.rng.randint(1, 2)), texts.text()
    record = {
        "request": {"model": model, "messages": chat(*turns), "temperature": 0.5},
        "response": completion(texts, model, [answer]),
    }
    return Made(record, (Reading((answer,), turns=turns, systems=(model,)),))


def openai_preferences(texts: Texts, number: int) -> Made:
    """The data of preference fine-tuning."""
    turns, better, worse = dialogue(texts, texts.rng.randint(1, 2)), texts.text(), texts.text()
    record = {
        "input": {"messages": chat(*turns), "tools": [], "parallel_tool_calls": True},
        "preferred_output": chat(Said(ASSISTANT, better)),
        "non_preferred_output": chat(Said(ASSISTANT, worse)),
    }
    return Made(record, (Reading((better, worse), turns=turns),), "a")


def response_items(texts: Texts, number: int) -> Made:
    """Items of the Responses API as a conversation: messages of parts, calls of functions and their outputs."""
    asked, answer, result = texts.text(), texts.text(), texts.text()
    name, arguments = f"get_{texts.word()}", json.dumps({"city": texts.word()})
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": "call_1", "output": result},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]},
    ]
    turns = (
        Said(USER, asked),
        Said(ASSISTANT, None, calls=((name, arguments),)),
        Said("tool", result, answers=1),
    )
    return Made({"items": items, "id": texts.word()}, (Reading((answer,), instruction=asked, turns=turns),))


def response_with_input(texts: Texts, number: int) -> Made:
    """An object of the Responses API with the request's `input` beside its `output`."""
    model, asked, answer = texts.name(), texts.text(), texts.text()
    record = response_object(texts, model, answer, reasoning=number % 2 == 0)
    record["input"] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": asked}]}]
    return Made(record, (Reading((answer,), instruction=asked, systems=(model,)),))


# --- promptfoo


def promptfoo_result(texts: Texts, number: int) -> Made:
    """One result: `prompt.raw` is what was sent, also the JSON of messages; an error has no output."""
    asked, answer, provider, label = texts.text(), texts.text(), f"openai:{texts.name()}", texts.name()
    label = label if number % 2 else ""
    raw = asked
    if number % 3 == 0:
        raw = json.dumps(chat(Said(SYSTEM, texts.text()), Said(USER, asked)))
    turns = (Said(USER, raw),)
    failed = number % 8 == 5
    record: Record = {
        "cost": 0,
        "gradingResult": {"pass": True, "score": 1, "reason": texts.text(), "componentResults": []},
        "id": texts.word(),
        "latencyMs": 3,
        "namedScores": {},
        "prompt": {"raw": raw, "label": texts.line()},
        "promptId": texts.word(),
        "promptIdx": 0,
        "provider": {"id": provider, "label": label},
        "response": {"error": "made up"} if failed else {"output": answer, "tokenUsage": {}, "cached": False},
        "score": number % 2,
        "success": bool(number % 2),
        "testCase": {
            "vars": {"question": texts.text()},
            "assert": [{"type": "contains", "value": texts.word()}],
        },
        "testIdx": number,
        "vars": {"question": texts.text()},
        "metadata": {},
        "failureReason": 0,
    }
    if failed:
        record["error"] = "made up"
        return Made(record)
    system = (label, provider) if label else (provider,)
    return Made(record, (Reading((answer,), turns=turns, systems=(system,), columns={"score": number % 2}),))


def promptfoo_document(made: Sequence[Made]) -> Record:
    """Return the document of `promptfoo eval -o results.json`: further lists of objects stand in it."""
    return {
        "evalId": "eval-made-up",
        "results": {
            "version": 3,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "prompts": [{"raw": "{{question}}", "label": "{{question}}", "id": "p", "provider": "echo"}],
            "results": [each.record for each in made],
            "stats": {"successes": 1, "failures": 0, "errors": 0},
        },
        "config": {
            "prompts": ["{{question}}"],
            "providers": ["echo"],
            "tests": [{"vars": {"question": "made up"}}, {"vars": {"question": "made up, too"}}],
        },
        "shareableUrl": None,
        "metadata": {"promptfooVersion": "0.123.1"},
    }


def promptfoo_tests(texts: Texts, number: int) -> Made:
    """`tests.csv`: variables and what is expected; nothing answered it yet."""
    return Made(
        {"question": texts.text(), "__expected": f"equals: {texts.line()}", "__description": texts.line()}
    )


# --- DeepEval and ragas


def deepeval_cases(texts: Texts, number: int) -> Made:
    """Test cases as `EvaluationDataset.save_as` writes them."""
    asked, answer, expected = texts.text(), texts.text(), texts.maybe(texts.text())
    contexts = [texts.line(), texts.line()]
    record = {
        "input": asked,
        "actual_output": answer,
        "expected_output": expected,
        "context": None,
        "retrieval_context": contexts,
        "name": None,
        "comments": None,
        "source_file": None,
    }
    reading = Reading((answer,), instruction=asked, reference=expected, shown={"context": tuple(contexts)})
    return Made(record, (reading,))


def deepeval_goldens(texts: Texts, number: int) -> Made:
    """Goldens have no output yet."""
    record = {"input": texts.text(), "actual_output": None, "expected_output": texts.text(), "context": None}
    return Made(record)


def deepeval_run(texts: Texts, number: int) -> Made:
    """A case of a test run, in camel case, with the metrics that judged it."""
    asked, answer, expected = texts.text(), texts.text(), texts.text()
    record = {
        "name": f"test_case_{number}",
        "input": asked,
        "actualOutput": answer,
        "expectedOutput": expected,
        "retrievalContext": [texts.line()],
        "success": bool(number % 2),
        "metricsData": [{"name": "Correctness [GEval]", "score": 0.5, "reason": texts.text()}],
        "runDuration": 0.5,
        "order": number,
    }
    reading = Reading((answer,), instruction=asked, reference=expected, columns={"success": bool(number % 2)})
    return Made(record, (reading,))


def deepeval_run_document(made: Sequence[Made]) -> Record:
    return {
        "testFile": "test_made_up.py",
        "testCases": [each.record for each in made],
        "conversationalTestCases": [],
        "metricsScores": [{"metric": "Correctness [GEval]", "scores": [0.5], "passes": 1, "fails": 0}],
        "testPassed": 1,
        "testFailed": 0,
    }


def ragas_old(texts: Texts, number: int, *, listed: bool) -> Made:
    """The names until 0.1; `ground_truths` is a list of alternatives in the first of them."""
    asked, answer, contexts = texts.text(), texts.text(), [texts.line(), texts.line()]
    truths = [texts.text() for _ in range(1 + number % 2)]
    record: Record = {"question": asked, "contexts": contexts, "answer": answer}
    record |= {"ground_truths": truths} if listed else {"ground_truth": truths[0]}
    reading = Reading(
        (answer,),
        instruction=asked,
        reference=tuple(truths) if listed else truths[0],
        shown={"context": tuple(contexts)},
    )
    return Made(texts.shuffled(record), (reading,))


def ragas_new(texts: Texts, number: int) -> Made:
    """The names since 0.2; `reference_contexts` are what should have been retrieved."""
    asked, answer, reference = texts.text(), texts.text(), texts.text()
    contexts = [texts.line(), texts.line()]
    record = {
        "user_input": asked,
        "retrieved_contexts": contexts,
        "reference_contexts": [texts.line()],
        "response": answer,
        "reference": reference,
    }
    reading = Reading((answer,), instruction=asked, reference=reference, shown={"context": tuple(contexts)})
    return Made(texts.shuffled(record), (reading,))


def ragas_turns(texts: Texts, number: int) -> Made:
    """Samples of several turns: `user_input` is the conversation, its roles are `human` and `ai`."""
    turns, answer, reference = dialogue(texts, texts.rng.randint(1, 2)), texts.text(), texts.text()
    roles = {USER: "human", ASSISTANT: "ai"}
    record = {
        "user_input": [
            {"content": turn.text, "metadata": None, "type": roles[turn.role]}
            for turn in (*turns, Said(ASSISTANT, answer))
        ],
        "reference": reference,
    }
    return Made(record, (Reading((answer,), turns=turns, reference=reference),))


# --- MLflow, Langfuse, LangSmith


def mlflow_records(texts: Texts, number: int, *, inside: bool) -> Made:
    """The rows of `mlflow.genai.evaluate`: the reference is an expectation by the name `expected_response`."""
    asked, answer, expected = texts.text(), texts.text(), texts.text()
    record = {
        "inputs": {"question": asked},
        "outputs": {"response": answer} if inside else answer,
        "expectations": {"expected_response": expected},
        "tags": {"topic": texts.word()},
    }
    return Made(record, (Reading((answer,), instruction=asked, reference=expected),))


def mlflow_table(texts: Texts, number: int) -> Made:
    """A row of `eval_results_table.json`, whose columns stand beside the rows."""
    asked, answer, truth = texts.text(), texts.text(), texts.text()
    record = {"inputs": asked, "ground_truth": truth, "outputs": answer, "exact_match/v1/score": number % 2}
    return Made(record, (Reading((answer,), instruction=asked, reference=truth),))


def split_table(made: Sequence[Made]) -> Record:
    """Return a table as pandas writes it with `orient="split"`."""
    return {"columns": [*made[0].record], "data": [[*each.record.values()] for each in made]}


def mlflow_traces(texts: Texts, number: int) -> Made:
    """A row of `mlflow.search_traces`: request and response are JSON texts."""
    asked, answer = texts.text(), texts.text()
    record = {
        "trace_id": f"tr-{texts.word()}",
        "state": "OK",
        "request_time": 1_760_000_000_000,
        "request": json.dumps({"question": asked}),
        "response": json.dumps(answer),
        "tags": {"topic": texts.word()},
        "spans": [],
        "assessments": [],
    }
    return Made(record, (Reading((answer,), instruction=asked),))


def langfuse_traces(texts: Texts, number: int, *, form: str) -> Made:
    """A trace or an observation: input and output are texts, messages, or objects of messages."""
    turns, answer = dialogue(texts, 1, system=form == "messages"), texts.text()
    inputs: dict[str, Any] = {
        "texts": turns[-1].text,
        "messages": chat(*turns),
        "objects": {"messages": chat(*turns)},
    }
    record = {
        "id": texts.word(),
        "timestamp": "2026-01-01T00:00:00.000Z",
        "name": "qa",
        "input": inputs[form],
        "output": answer if form == "texts" else {"role": "assistant", "content": answer},
        "sessionId": None,
        "metadata": {"topic": texts.word()},
        "tags": [],
        "scores": [{"name": "helpful", "value": 1.0}],
    }
    return Made(record, (Reading((answer,), turns=turns),))


def langfuse_page(made: Sequence[Made]) -> Record:
    """Return a page of Langfuse's API."""
    return {"data": [each.record for each in made], "meta": {"page": 1, "limit": 50, "totalItems": len(made)}}


def langfuse_items(texts: Texts, number: int) -> Made:
    """Items of a data set: what is expected, and no answer."""
    record = {
        "id": texts.word(),
        "status": "ACTIVE",
        "input": {"question": texts.text()},
        "expectedOutput": {"answer": texts.text()},
        "metadata": None,
        "datasetName": "made-up",
    }
    return Made(record)


def langsmith_runs(texts: Texts, number: int) -> Made:
    """Runs as they are exported: inputs and outputs are objects."""
    asked, answer = texts.text(), texts.text()
    record = {
        "id": texts.word(),
        "name": "target",
        "run_type": "chain",
        "inputs": {"question": asked},
        "outputs": {"answer": answer},
        "error": None,
        "reference_example_id": texts.word(),
        "start_time": "2026-01-01T00:00:00",
    }
    return Made(record, (Reading((answer,), instruction=asked),))


def langsmith_examples(texts: Texts, number: int) -> Made:
    """Examples of a data set look like runs, but `outputs` is the reference: nothing answered them."""
    record = {
        "id": texts.word(),
        "dataset_id": texts.word(),
        "inputs": {"question": texts.text()},
        "outputs": {"answer": texts.text()},
        "metadata": {"dataset_split": ["base"]},
        "created_at": "2026-01-01T00:00:00",
    }
    return Made(record)


def langsmith_experiment(texts: Texts, number: int) -> Made:
    """The table of an experiment: `outputs` are the answers, `reference` what the example has."""
    asked, answer, truth = texts.text(), texts.text(), texts.text()
    record = {
        "inputs.question": asked,
        "outputs.answer": answer,
        "error": None,
        "reference.answer": truth,
        "feedback.correct": number % 2,
        "execution_time": 0.5,
        "example_id": texts.word(),
        "id": texts.word(),
    }
    return Made(record, (Reading((answer,), instruction=asked, reference=truth),))


# --- Inspect and Every Eval Ever


def inspect_dataset(texts: Texts, number: int) -> Made:
    """Samples before a run: an input and a target."""
    given: Any = texts.text() if number % 2 else chat(*dialogue(texts, 1, system=True))
    return Made({"id": number, "input": given, "target": texts.line(), "metadata": {"topic": texts.word()}})


def eee_single_turn(texts: Texts, number: int) -> Made:
    """A record of a sample: `input.raw`, `output.raw`, a list, and references, alternatives."""
    asked, answers = texts.text(), [texts.text() for _ in range(1 + (number % 4 == 0))]
    references = [texts.line() for _ in range(1 + number % 2)]
    model = f"org/{texts.name()}"
    record = {
        "schema_version": "0.2.2",
        "evaluation_id": texts.word(),
        "model_id": model,
        "evaluation_name": "made-up",
        "sample_id": str(number),
        "interaction_type": "single_turn",
        "input": {"raw": asked, "formatted": f"<user>{asked}", "reference": references, "choices": None},
        "output": {"raw": answers, "reasoning_trace": None},
        "messages": None,
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": texts.word(),
                "extraction_method": "regex",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": float(number % 2), "is_correct": bool(number % 2)},
    }
    reference = tuple(references) if len(references) > 1 else references[0]
    columns = {"is_correct": bool(number % 2)}
    return Made(
        record,
        tuple(
            Reading((answer,), instruction=asked, reference=reference, systems=(model,), columns=columns)
            for answer in answers
        ),
    )


def eee_conversation(texts: Texts, number: int) -> Made:
    """A sample of several turns: `messages` is the transcript, `output` is null."""
    made = eee_single_turn(texts, 3)
    turns, answer = dialogue(texts, 2), texts.text()
    messages = [
        {"turn_idx": place, "role": turn.role, "content": turn.text, "tool_calls": None, "tool_call_id": None}
        for place, turn in enumerate((*turns, Said(ASSISTANT, answer)))
    ]
    record = {**made.record, "interaction_type": "multi_turn", "output": None, "messages": messages}
    (reading,) = made.readings
    return Made(
        record,
        (Reading((answer,), turns=turns, reference=reading.reference, systems=reading.systems),),
    )


# --- Lists and objects of responses


def responses_in_list(texts: Texts, number: int) -> Made:
    asked, answers = texts.text(), [texts.text() for _ in range(texts.rng.randint(1, 3))]
    return Made(
        texts.shuffled({"prompt": asked, "responses": answers}),
        tuple(Reading((answer,), instruction=asked) for answer in answers),
    )


def responses_of_systems(texts: Texts, number: int) -> Made:
    asked = texts.text()
    names = [f"{texts.name()}-{place}" for place in range(3)]
    answers = [texts.text() for _ in names]
    record = {
        "question": asked,
        "responses": [{"model": name, "response": text} for name, text in zip(names, answers, strict=True)],
    }
    return Made(
        record,
        tuple(
            Reading((text,), instruction=asked, systems=(name,))
            for name, text in zip(names, answers, strict=True)
        ),
    )


def objects_by_id(texts: Texts, number: int) -> Made:
    asked, answer, truth = texts.text(), texts.text(), texts.text()
    record = {"question": asked, "reference": truth, "response": answer}
    return Made(record, (Reading((answer,), instruction=asked, reference=truth),))


def list_of_one(texts: Texts, number: int) -> Made:
    asked, answer, truth = texts.text(), texts.text(), texts.text()
    record = {"question": asked, "reference": [truth], "response": [answer]}
    return Made(record, (Reading((answer,), instruction=asked, reference=truth),))


def pretty_lines(name: str) -> Any:
    """Write objects of several lines each, one after the other, into a file that is called JSON lines."""

    def write(folder: Path, made: Sequence[Made]) -> list[Path]:
        text = "\n".join(json.dumps(each.record, indent=2, ensure_ascii=False) for each in made)
        return [written(folder / name, text.encode())]

    return write


HARNESSES = (
    Shape("lm-evaluation-harness", lm_eval, json_lines("samples_made_2026.jsonl"), read=(ANSWER, GRADED)),
    Shape("lm-evaluation-harness, chat", lm_eval_chat, json_lines("samples_c.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape(
        "lm-evaluation-harness, filtered",
        lm_eval_filtered,
        json_lines("samples_g.jsonl"),
        read=(ANSWER, GRADED),
    ),
    Shape(
        "lm-evaluation-harness, repeats", lm_eval_repeats, json_lines("samples_r.jsonl"), read=(ANSWER, GRADED)
    ),
    Shape(
        "lm-evaluation-harness, choices",
        lm_eval_choices,
        json_lines("s.jsonl"),
        read=(),
        refuse=(ANSWER, GRADED),
    ),
    Shape("OpenAI batch", openai_batch, two_files("output.jsonl", "input.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape(
        "OpenAI batch of responses", openai_batch_of_responses, two_files("o.jsonl", "i.jsonl"), read=(ANSWER,)
    ),
    Shape(
        "OpenAI chat completions", chat_completions, json_lines("c.jsonl"), read=(), refuse=(ANSWER, DIALOGUE)
    ),
    Shape(
        "OpenAI requests and completions",
        requests_and_completions,
        json_lines("l.jsonl"),
        read=(ANSWER, DIALOGUE),
    ),
    Shape("OpenAI preferences", openai_preferences, json_lines("dpo.jsonl"), read=(PAIR,), labels=True),
    Shape("OpenAI response items", response_items, json_lines("items.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape("OpenAI response with input", response_with_input, json_lines("r.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape(
        "promptfoo results",
        promptfoo_result,
        json_document("results.json", promptfoo_document),
        read=(ANSWER, DIALOGUE),
        refuse=(PAIR,),
    ),
    Shape("promptfoo results, lines", promptfoo_result, json_lines("results.jsonl"), read=(ANSWER,)),
    Shape("promptfoo tests", promptfoo_tests, sheet("tests.csv"), read=(), refuse=(ANSWER, GRADED)),
    Shape("DeepEval test cases", deepeval_cases, json_array("cases.json"), read=(ANSWER, GRADED, GROUNDED)),
    Shape("DeepEval goldens", deepeval_goldens, json_array("goldens.json"), read=(), refuse=(ANSWER, GRADED)),
    Shape(
        "DeepEval test run",
        deepeval_run,
        json_document("run.json", deepeval_run_document),
        read=(ANSWER, GRADED),
    ),
    *(
        Shape(
            name,
            partial(ragas_old, listed=listed),
            json_lines("ragas.jsonl"),
            read=(ANSWER, GRADED, GROUNDED),
        )
        for name, listed in (("ragas, old names", False), ("ragas, oldest names", True))
    ),
    Shape("ragas, new names", ragas_new, json_lines("ragas.jsonl"), read=(ANSWER, GRADED, GROUNDED)),
    Shape("ragas, several turns", ragas_turns, json_lines("ragas.jsonl"), read=(ANSWER, DIALOGUE)),
    *(
        Shape(name, partial(mlflow_records, inside=inside), json_lines("e.jsonl"), read=(ANSWER, GRADED))
        for name, inside in (("MLflow evaluation records", False), ("MLflow records of objects", True))
    ),
    Shape(
        "MLflow results table",
        mlflow_table,
        json_document("eval_results_table.json", split_table, indent=None),
        read=(ANSWER, GRADED),
    ),
    Shape("MLflow traces", mlflow_traces, json_lines("traces.jsonl"), refuse=(GRADED,)),
    *(
        Shape(
            f"Langfuse traces of {form}",
            partial(langfuse_traces, form=form),
            json_document("traces.json", langfuse_page),
            read=(ANSWER, DIALOGUE),
        )
        for form in ("texts", "messages", "objects")
    ),
    Shape("Langfuse items", langfuse_items, json_lines("items.jsonl"), read=(), refuse=(ANSWER, GRADED)),
    Shape("LangSmith runs", langsmith_runs, json_lines("runs.jsonl"), refuse=(GRADED,)),
    Shape("LangSmith examples", langsmith_examples, json_lines("examples.jsonl"), read=(), refuse=(ANSWER,)),
    Shape("LangSmith experiment", langsmith_experiment, sheet("experiment.csv"), read=(ANSWER, GRADED)),
    Shape("Inspect data set", inspect_dataset, json_lines("dataset.jsonl"), read=(), refuse=(ANSWER, GRADED)),
    Shape("Every Eval Ever", eee_single_turn, json_lines("samples.jsonl"), read=(ANSWER, GRADED)),
    Shape(
        "Every Eval Ever, several turns", eee_conversation, json_lines("samples.jsonl"), read=(DIALOGUE, GRADED)
    ),
    Shape("responses in a list", responses_in_list, json_lines("r.jsonl"), refuse=(GRADED,)),
    Shape("responses of systems in a list", responses_of_systems, json_array("r.json")),
    Shape(
        "an object of objects",
        objects_by_id,
        json_document("r.json", lambda made: {f"row-{place}": each.record for place, each in enumerate(made)}),
        read=(ANSWER, GRADED),
    ),
    Shape("a list of one", list_of_one, parquet("r.parquet"), read=(ANSWER, GRADED)),
    Shape("an array in JSON lines", objects_by_id, json_array("r.jsonl"), read=(ANSWER, GRADED)),
    Shape("objects of several lines", objects_by_id, pretty_lines("r.jsonl"), read=(ANSWER, GRADED)),
)
