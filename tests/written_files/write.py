"""Write made-up rows into files with the writers of other tools: `python write.py TOOL`.

Run it in an environment of the tool. Its files are named by the tool and the version that is installed; the
texts are our own. `shapes_of_written_files.py` says what is right for each file.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
ROWS = json.loads((HERE / "rows.json").read_text(encoding="utf-8"))


def place(tool: str, kind: str, suffix: str) -> Path:
    """Return the path of a file by the tool's name and installed version."""
    return HERE / f"{tool}-{version(tool)}-{kind}{suffix}"


def lm_eval() -> None:
    """`simple_evaluate` with `log_samples`, and `EvaluationTracker.save_results_samples`."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Answers(LM):
        def generate_until(self, requests, disable_tqdm=False):
            prompts = [request.args[0] for request in requests]
            return [next(row["answer"] for row in ROWS if row["question"] in prompt) for prompt in prompts]

        def loglikelihood(self, requests, disable_tqdm=False):
            return [(-1.5, False) for _ in requests]

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            return [-1.5 for _ in requests]

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.jsonl"
        documents = [{"id": row["id"], "question": row["question"], "answer": row["reference"]} for row in ROWS]
        data.write_text("".join(json.dumps(document) + "\n" for document in documents))
        common = (
            f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\n"
            'doc_to_text: "Question: {{question}}\\nAnswer:"\n'
        )
        generated = (
            'output_type: generate_until\ndoc_to_target: "{{answer}}"\n'
            'generation_kwargs: {until: ["\\n\\n\\n"]}\nmetric_list: [{metric: exact_match}]\n'
        )
        tasks = {
            "plain": common + generated,
            "filtered": common
            + generated
            + 'filter_list:\n- {name: first-word, filter: [{function: regex, regex_pattern: "(\\\\w+)"}, '
            "{function: take_first}]}\n",
            "repeats": common + generated + "repeats: 2\n",
            "choices": common + 'output_type: multiple_choice\ndoc_to_choice: ["yes", "no"]\ndoc_to_target: 0\n'
            "metric_list: [{metric: acc}]\n",
        }
        for name, text in tasks.items():
            (Path(folder) / f"{name}.yaml").write_text(f"task: {name}\n{text}")
        manager = TaskManager(include_path=folder, include_defaults=False)
        for name in tasks:
            found = simple_evaluate(
                Answers(), tasks=[name], task_manager=manager, log_samples=True, bootstrap_iters=0
            )
            out = Path(folder) / f"out-{name}"
            tracker = EvaluationTracker(output_path=str(out))
            tracker.date_id = "2026-01-01T00-00-00"
            tracker.general_config_tracker.model_name_sanitized = "made-up"
            tracker.save_results_samples(task_name=name, samples=found["samples"][name])
            (written,) = out.rglob("samples_*.jsonl")
            shutil.copy(written, place("lm_eval", name, ".jsonl"))


def inspect_ai() -> None:
    """`eval` with a model of given outputs; the log in both formats."""
    import inspect_ai as library
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate, system_message

    samples = [Sample(id=row["id"], input=row["question"], target=row["reference"]) for row in ROWS]
    for form in ("eval", "json"):
        outputs = [ModelOutput.from_content("mockllm/model", row["answer"]) for row in ROWS]
        for output in outputs:
            output.usage = ModelUsage(input_tokens=5, output_tokens=7, total_tokens=12)
        model = get_model("mockllm/model", custom_outputs=outputs)
        task = library.Task(
            dataset=samples, solver=[system_message("Be brief."), generate()], scorer=match(), name="made_up"
        )
        with tempfile.TemporaryDirectory() as folder:
            library.eval(
                task,
                model=model,
                log_dir=folder,
                log_format=form,
                display="none",
                max_connections=1,
                max_samples=1,
            )
            (written,) = Path(folder).glob(f"*.{form}")
            shutil.copy(written, place("inspect_ai", "log", f".{form}"))


def datasets() -> None:
    """`Dataset.to_json`, `.to_parquet`, `.to_csv` with the columns that TRL names."""
    from datasets import Dataset

    user = [[{"role": "user", "content": row["question"]}] for row in ROWS]
    good = [[{"role": "assistant", "content": row["answer"]}] for row in ROWS]
    bad = [[{"role": "assistant", "content": row["worse"]}] for row in ROWS]
    questions, answers, worse = ([row[key] for row in ROWS] for key in ("question", "answer", "worse"))
    text = Dataset.from_dict({"prompt": questions, "completion": answers})
    text.to_json(place("datasets", "trl-completion", ".jsonl"))
    text.to_csv(place("datasets", "trl-completion", ".csv"), index=False)
    talk = Dataset.from_dict({"prompt": user, "completion": good})
    talk.to_parquet(place("datasets", "trl-completion-conversational", ".parquet"))
    Dataset.from_dict({"prompt": questions, "chosen": answers, "rejected": worse}).to_json(
        place("datasets", "trl-preference", ".jsonl")
    )
    pairs = Dataset.from_dict({"prompt": user, "chosen": good, "rejected": bad})
    pairs.to_parquet(place("datasets", "trl-preference-conversational", ".parquet"))
    whole = Dataset.from_dict(
        {
            "chosen": [u + g for u, g in zip(user, good, strict=True)],
            "rejected": [u + b for u, b in zip(user, bad, strict=True)],
        }
    )
    whole.to_json(place("datasets", "trl-preference-implicit", ".jsonl"))


def trl() -> None:
    """`unpair_preference_dataset`, `extract_prompt` and `maybe_convert_to_chatml`."""
    from datasets import Dataset
    from trl import extract_prompt, maybe_convert_to_chatml, unpair_preference_dataset

    user = [[{"role": "user", "content": row["question"]}] for row in ROWS]
    good = [[{"role": "assistant", "content": row["answer"]}] for row in ROWS]
    bad = [[{"role": "assistant", "content": row["worse"]}] for row in ROWS]
    pairs = Dataset.from_dict({"prompt": user, "chosen": good, "rejected": bad})
    unpair_preference_dataset(pairs).to_json(place("trl", "kto", ".jsonl"))
    whole = Dataset.from_dict(
        {
            "chosen": [u + g for u, g in zip(user, good, strict=True)],
            "rejected": [u + b for u, b in zip(user, bad, strict=True)],
        }
    )
    whole.map(extract_prompt).to_json(place("trl", "extracted", ".jsonl"))
    shared = Dataset.from_dict(
        {
            "conversations": [
                [{"from": "user", "value": row["question"]}, {"from": "assistant", "value": row["answer"]}]
                for row in ROWS
            ]
        }
    )
    shared.map(maybe_convert_to_chatml, remove_columns="conversations").to_json(
        place("trl", "chatml", ".jsonl")
    )


def openai() -> None:
    """The library's own types, `to_dict` and `model_dump_json`: completions, responses, and a batch's lines."""
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    def completion(row):
        message = {"role": "assistant", "content": row["answer"], "refusal": None}
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
        return ChatCompletion.model_validate({
            "id": f"chatcmpl-{row['id']}", "object": "chat.completion", "created": 1, "model": row["system"],
            "choices": [choice],
        })  # fmt: skip

    def response(row):
        part = {"type": "output_text", "text": row["answer"], "annotations": []}
        item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return Response.model_validate({
            "id": f"resp_{row['id']}", "object": "response", "created_at": 1, "model": row["system"],
            "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "status": "completed",
        })  # fmt: skip

    lines = [completion(row).model_dump_json() for row in ROWS]
    place("openai", "completions", ".jsonl").write_text("\n".join(lines) + "\n")
    for kind, body, url in (
        (
            "chat",
            lambda row: {"messages": [{"role": "user", "content": row["question"]}]},
            "/v1/chat/completions",
        ),
        ("responses", lambda row: {"input": row["question"]}, "/v1/responses"),
    ):
        made = completion if kind == "chat" else response
        asked = [
            {
                "custom_id": row["id"],
                "method": "POST",
                "url": url,
                "body": {"model": row["system"], **body(row)},
            }
            for row in ROWS
        ]
        answered = [
            {
                "id": f"batch_req_{row['id']}",
                "custom_id": row["id"],
                "response": {"status_code": 200, "request_id": "r", "body": made(row).to_dict()},
                "error": None,
            }
            for row in reversed(ROWS)
        ]
        for name, found in (("input", asked), ("output", answered)):
            file = place("openai", f"batch-{kind}-{name}", ".jsonl")
            file.write_text("".join(json.dumps(line) + "\n" for line in found))


def ragas() -> None:
    """`EvaluationDataset.to_jsonl`, `.to_csv`, and samples of several turns."""
    from ragas import EvaluationDataset, MultiTurnSample, SingleTurnSample
    from ragas.messages import AIMessage, HumanMessage

    single = EvaluationDataset(
        [
            SingleTurnSample(
                user_input=row["question"],
                retrieved_contexts=row["contexts"],
                response=row["answer"],
                reference=row["reference"],
            )
            for row in ROWS
        ]
    )
    single.to_jsonl(place("ragas", "single", ".jsonl"))
    single.to_csv(place("ragas", "single", ".csv"))
    several = EvaluationDataset(
        [
            MultiTurnSample(
                user_input=[
                    HumanMessage(content="Hello."),
                    AIMessage(content="Good day."),
                    HumanMessage(content=row["question"]),
                    AIMessage(content=row["answer"]),
                ],
                reference=row["reference"],
            )
            for row in ROWS
        ]
    )
    several.to_jsonl(place("ragas", "several-turns", ".jsonl"))


def deepeval() -> None:
    """`EvaluationDataset.save_as` in its three formats, and the file of a test run."""
    from deepeval.dataset import EvaluationDataset
    from deepeval.test_case import LLMTestCase
    from deepeval.test_run.api import LLMApiTestCase
    from deepeval.test_run.test_run import TestRun

    data = EvaluationDataset()
    for row in ROWS:
        data.add_test_case(
            LLMTestCase(
                input=row["question"],
                actual_output=row["answer"],
                expected_output=row["reference"],
                retrieval_context=row["contexts"],
            )
        )
    for form in ("json", "csv", "jsonl"):
        with tempfile.TemporaryDirectory() as folder:
            written = data.save_as(form, folder, "cases", include_test_cases=True)
            shutil.copy(written, place("deepeval", "cases", f".{form}"))
    cases = [
        LLMApiTestCase(
            name=row["id"],
            input=row["question"],
            actualOutput=row["answer"],
            expectedOutput=row["reference"],
            retrievalContext=row["contexts"],
            success=True,
            metricsData=[],
            runDuration=0.5,
            evaluationCost=None,
            order=number,
        )
        for number, row in enumerate(ROWS)
    ]
    run = TestRun(testFile="test_made_up.py", testCases=cases, metricsScores=[], testPassed=3, testFailed=0)
    with place("deepeval", "run", ".json").open("w") as stream:
        run.save(stream)


def mlflow() -> None:
    """`mlflow.models.evaluate` of given predictions: its table; and traces of calls."""
    import os

    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{tempfile.mkdtemp()}/m.db"
    import mlflow as library
    import pandas

    frame = pandas.DataFrame(
        {
            "inputs": [row["question"] for row in ROWS],
            "ground_truth": [row["reference"] for row in ROWS],
            "outputs": [row["answer"] for row in ROWS],
        }
    )

    def scores(predictions, targets):
        equal = [float(one == two) for one, two in zip(predictions, targets, strict=True)]
        return library.metrics.MetricValue(scores=equal)

    with library.start_run(), tempfile.TemporaryDirectory() as folder:
        found = library.models.evaluate(
            data=frame,
            targets="ground_truth",
            predictions="outputs",
            extra_metrics=[library.metrics.make_metric(eval_fn=scores, greater_is_better=True, name="equal")],
        )
        table = found.tables["eval_results_table"]
        uri = found.artifacts["eval_results_table"].uri
        written = Path(library.artifacts.download_artifacts(uri, dst_path=folder))
        assert len(table) == len(ROWS)
        shutil.copy(written, place("mlflow", "eval_results_table", ".json"))

    @library.trace
    def answer(question):
        return next(row["answer"] for row in ROWS if row["question"] == question)

    for row in ROWS:
        answer(row["question"])
    library.flush_trace_async_logging()
    traces = library.search_traces()
    columns = [name for name in traces.columns if name not in {"trace", "spans", "trace_metadata", "tags"}]
    traces[columns].to_json(place("mlflow", "traces", ".jsonl"), orient="records", lines=True)


def langsmith() -> None:
    """`evaluate` without an upload, its table; and runs as the client's schema dumps them."""
    from datetime import UTC, datetime
    from uuid import NAMESPACE_URL, uuid5

    from langsmith import Client
    from langsmith.evaluation import evaluate
    from langsmith.schemas import Example, Run

    when = datetime(2026, 1, 1, tzinfo=UTC)
    ids = {row["id"]: uuid5(NAMESPACE_URL, row["id"]) for row in ROWS}
    examples = [
        Example(
            id=ids[row["id"]],
            dataset_id=ids["r1"],
            created_at=when,
            inputs={"question": row["question"]},
            outputs={"answer": row["reference"]},
        )
        for row in ROWS
    ]

    def target(inputs):
        return {"answer": next(row["answer"] for row in ROWS if row["question"] == inputs["question"])}

    client = Client(api_url="http://127.0.0.1:9", api_key="made-up", auto_batch_tracing=False)
    found = evaluate(
        target,
        data=examples,
        evaluators=[lambda run, example: {"key": "correct", "score": 1}],
        client=client,
        upload_results=False,
        max_concurrency=0,
    )
    found.to_pandas().to_csv(place("langsmith", "experiment", ".csv"), index=False)
    runs = [
        Run(
            id=ids[row["id"]],
            name="target",
            run_type="chain",
            start_time=when,
            trace_id=ids[row["id"]],
            inputs={"question": row["question"]},
            outputs={"answer": row["answer"]},
            reference_example_id=ids[row["id"]],
        )
        for row in ROWS
    ]
    dump = "model_dump_json" if hasattr(Run, "model_dump_json") else "json"
    for kind, objects in (("runs", runs), ("examples", examples)):
        lines = [getattr(each, dump)() for each in objects]
        place("langsmith", kind, ".jsonl").write_text("\n".join(lines) + "\n")


def langfuse() -> None:
    """The objects of the library's own API, observations and items of a data set, as JSON."""
    from datetime import UTC, datetime

    from langfuse.api import DatasetItem, DatasetStatus, ObservationV2

    when = datetime(2026, 1, 1, tzinfo=UTC)
    traces = [
        ObservationV2(
            id=row["id"],
            trace_id=f"t-{row['id']}",
            start_time=when,
            project_id="p",
            type="GENERATION",
            name="qa",
            model=row["system"],
            input=[{"role": "user", "content": row["question"]}],
            output={"role": "assistant", "content": row["answer"]},
        )
        for row in ROWS
    ]
    items = [
        DatasetItem(
            id=row["id"],
            status=DatasetStatus.ACTIVE,
            input={"question": row["question"]},
            expected_output={"answer": row["reference"]},
            metadata=None,
            dataset_id="d",
            dataset_name="made-up",
            created_at=when,
            updated_at=when,
            media_references=[],
        )
        for row in ROWS
    ]
    for kind, objects in (("observations", traces), ("items", items)):
        lines = [each.model_dump_json(by_alias=True) for each in objects]
        place("langfuse", kind, ".jsonl").write_text("\n".join(lines) + "\n")


def promptfoo(folder: str) -> None:
    """`promptfoo eval` in a folder where npm has installed it; its provider `file://` gives our answers."""
    work = Path(folder)
    (work / "provider.js").write_text(
        f"const rows = {json.dumps(ROWS)};\n"
        "module.exports = class { id() { return 'made-up:north'; }\n"
        "  async callApi(prompt) {\n"
        "    return { output: rows.find(r => prompt.includes(r.question)).answer }; } };\n"
    )
    tests = [
        {
            "vars": {"question": row["question"], "reference": row["reference"]},
            "assert": [{"type": "contains", "value": row["reference"]}],
        }
        for row in ROWS
    ]
    config = {"prompts": ["{{question}}"], "providers": ["file://provider.js"], "tests": tests}
    (work / "promptfooconfig.json").write_text(json.dumps(config))
    number = json.loads((work / "node_modules/promptfoo/package.json").read_text())["version"]
    names = [f"results.{suffix}" for suffix in ("json", "jsonl", "csv")]
    subprocess.run(
        ["node", "node_modules/promptfoo/dist/src/entrypoint.js", "eval", "--no-cache",
         *(part for name in names for part in ("-o", name))],
        cwd=work, check=False,
    )  # fmt: skip
    for name in names:
        shutil.copy(work / name, HERE / f"promptfoo-{number}-{name}")


def minisweagent() -> None:
    """`DefaultAgent` with a model of given outputs, and its own `save`."""
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import DeterministicModel, make_output

    end = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    outputs = [
        make_output(ROWS[0]["answer"], [{"command": "echo found"}]),
        make_output("That is all.", [{"command": end}]),
    ]
    agent = DefaultAgent(
        DeterministicModel(outputs=outputs, model_name="north-1"),
        LocalEnvironment(),
        system_template="Be brief.",
        instance_template="{{task}}",
    )
    agent.run(ROWS[0]["question"])
    agent.save(HERE / f"mini_swe_agent-{version('mini-swe-agent')}-trajectory.traj.json")


def verl() -> None:
    """The rollouts that `trainer.rollout_data_dir` gets, and a data set as its examples' scripts write it."""
    from datasets import Dataset
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    with tempfile.TemporaryDirectory() as folder:
        RayPPOTrainer._write_generations(
            [row["question"] for row in ROWS],
            [row["answer"] for row in ROWS],
            [row["reference"] for row in ROWS],
            [1.0, 0.0, 1.0],
            {"acc": [1.0, 0.0, 1.0]},
            folder,
            7,
        )
        shutil.copy(Path(folder) / "7.jsonl", place("verl", "rollouts", ".jsonl"))
    records = [
        {
            "data_source": "made/up",
            "prompt": [{"role": "user", "content": row["question"]}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": row["reference"]},
            "extra_info": {"split": "test", "index": number, "answer": row["worse"], "question": row["id"]},
        }
        for number, row in enumerate(ROWS)
    ]
    Dataset.from_list(records).to_parquet(place("verl", "data", ".parquet"))


def fastchat() -> None:
    """`gen_api_answer.get_answer` with a model that gives our answers: the answers, and their questions."""
    import argparse

    from fastchat.llm_judge import gen_api_answer as program

    answers = iter([text for row in ROWS for text in (row["answer"], row["worse"])])
    program.args = argparse.Namespace(force_temperature=0.0)
    program.chat_completion_openai = lambda *_: next(answers)
    questions = [
        {
            "question_id": 81 + number,
            "category": "writing",
            "turns": [row["question"], "Say it in another way."],
        }
        for number, row in enumerate(ROWS)
    ]
    name = f"fastchat-{version('fschat')}"
    (HERE / f"{name}-question.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a" / "north-1.jsonl"
        for question in questions:
            program.get_answer(question, "north-1", 1, 100, str(file))
        shutil.copy(file, HERE / f"{name}-north-1.jsonl")


def openhands() -> None:
    """The events of the SDK, as a line of the benchmarks' output has them in `history`."""
    from openhands.sdk.event import MessageEvent
    from openhands.sdk.llm import Message, TextContent

    row = ROWS[0]
    turns = [
        ("user", row["question"]),
        ("assistant", row["worse"]),
        ("user", "No."),
        ("assistant", row["answer"]),
    ]
    events = [
        MessageEvent(
            source="user" if role == "user" else "agent",
            llm_message=Message(role=role, content=[TextContent(text=text)]),
        ).model_dump(mode="json")
        for role, text in turns
    ]
    line = {
        "instance_id": row["id"],
        "attempt": 1,
        "test_result": {"git_patch": ""},
        "instruction": row["question"],
        "metadata": {"llm": {"model": "north-1"}, "dataset": "made/up"},
        "history": events,
        "error": None,
    }
    place("openhands-sdk", "output", ".jsonl").write_text(json.dumps(line) + "\n")


def conversation(row):
    """Return messages of an agent that calls a tool once, in OpenAI's form."""
    function = {"name": "find", "arguments": json.dumps({"id": row["id"]})}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": row["question"]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "find", "content": row["reference"]},
        {"role": "assistant", "content": row["answer"]},
    ]


def tau_bench() -> None:
    """`EnvRunResult.model_dump`, as `run` writes the list of them (its repository, commit 59a200c)."""
    from tau_bench.types import EnvRunResult

    results = [
        EnvRunResult(task_id=number, reward=1.0, info={"source": "user"}, traj=conversation(row), trial=0)
        for number, row in enumerate(ROWS)
    ]
    text = json.dumps([result.model_dump() for result in results], indent=2)
    (HERE / "tau_bench-59a200c-results.json").write_text(text)


def tau2_bench() -> None:
    """`Results.save` (its repository, commit a2c0247)."""
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage, UserMessage
    from tau2.data_model.simulation import AgentInfo, Info, Results, RewardInfo, SimulationRun, UserInfo
    from tau2.data_model.tasks import StructuredUserInstructions, Task, UserScenario
    from tau2.environment.environment import EnvironmentInfo

    when = "2026-01-01T00:00:00"
    told = StructuredUserInstructions(domain="made-up", reason_for_call="made up", task_instructions="Ask.")
    tasks = [Task(id=row["id"], user_scenario=UserScenario(instructions=told)) for row in ROWS]
    runs = [
        SimulationRun(
            id=f"s-{row['id']}",
            task_id=row["id"],
            timestamp=when,
            start_time=when,
            end_time=when,
            duration=1.0,
            termination_reason="user_stop",
            reward_info=RewardInfo(reward=1.0),
            messages=[
                UserMessage(role="user", content=row["question"], turn_idx=0, timestamp=when),
                AssistantMessage(
                    role="assistant",
                    content=None,
                    tool_calls=[ToolCall(id="c1", name="find", arguments={"id": row["id"]})],
                    turn_idx=1,
                    timestamp=when,
                ),
                ToolMessage(id="c1", role="tool", content=row["reference"], turn_idx=2, timestamp=when),
                AssistantMessage(role="assistant", content=row["answer"], turn_idx=3, timestamp=when),
            ],
            trial=0,
        )
        for row in ROWS
    ]
    info = Info(
        git_commit="made-up",
        num_trials=1,
        max_steps=9,
        max_errors=9,
        user_info=UserInfo(implementation="user_simulator", llm="south-1"),
        agent_info=AgentInfo(implementation="llm_agent", llm="north-1"),
        environment_info=EnvironmentInfo(domain_name="made-up", policy="Be brief."),
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        Results(timestamp=when, info=info, tasks=tasks, simulations=runs).save(file)
        shutil.copy(file, HERE / "tau2_bench-a2c0247-results.json")


def every_eval_ever(samples: str) -> None:
    """The converter of lm-evaluation-harness's samples (its repository's version)."""
    from every_eval_ever.converters.lm_eval.instance_level_adapter import LMEvalInstanceLevelAdapter

    logs = LMEvalInstanceLevelAdapter().transform_samples(samples, "made-up", "org/north-1", "plain")
    lines = [log.model_dump_json() for log in logs]
    place("every-eval-ever", "samples", ".jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
