"""Rewards from `localjudge serve` for trainers, with the standard library alone.

TRL calls a function with the prompts and the completions of a step:

    from localjudge import RewardEndpoint

    trainer = GRPOTrainer(reward_funcs=RewardEndpoint("http://127.0.0.1:8700"), …)

verl is given this file and the name `compute_score`; the environment names the endpoint:

    LOCALJUDGE_URL=http://127.0.0.1:8700 python -m verl.trainer.main_ppo \\
        custom_reward_function.name=compute_score custom_reward_function.path=…/integrations/reward.py
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_TRIES = 5
_PAUSE = 5.0
"""Seconds between two tries."""
_BUSY = 429
"""The status of an endpoint that has no room now; such an answer is no try."""
_UNAVAILABLE = 503
_PROMPT_NAMES = ("question", "prompt", "raw_prompt")
"""The names of the prompt that verl passes, the best first."""
_TURNS = ("conversation", "conversation_with_reasoning")
_FROM_PROMPT = ("instruction", "candidate") + _TURNS
"""The fields of a rubric that the prompt and the completion have, never a column of a dataset."""
_KEYS = (
    "role", "content", "name", "function", "tool_calls", "tool_call_id", "function_call", "error", "is_error",
    "reasoning_content", "reasoning", "audio",
)  # fmt: skip
"""The keys of a message that the judge reads; trainers keep token ids and log-probabilities beside them."""
_MEDIA = ("image", "video", "audio", "document", "input_image", "input_audio", "input_file")


class RewardEndpoint:
    """A function of prompts and completions that asks a running `localjudge serve --reward FORMULA`.

    Args:
        url: the address of the endpoint.
        token: the endpoint's token; None takes the environment's LOCALJUDGE_TOKEN, if there is one.
        timeout: seconds to wait for an answer, and to repeat a request while the endpoint is busy.
    """

    __name__ = "localjudge"  # trainers name the columns of their logs by it

    def __init__(self, url: str, token: str | None = None, timeout: float = 600.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._token = token or os.environ.get("LOCALJUDGE_TOKEN")
        # Neither a proxy of the environment nor a redirect leads elsewhere.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Return a reward for each completion, as TRL asks for.

        Only what the rubric of the endpoint reads is sent: the prompts, the completions, and the columns with
        the usual names of its fields.

        Args:
            prompts: texts, or lists of messages.
            completions: texts, or lists of messages, with the calls of tools and their results.
            columns: further columns of the dataset, a list each, such as `reference`; and whatever else the
                trainer passes, which is not sent.

        Returns:
            a number for each completion; None for one that could not be judged, if the endpoint was started
            with `--failed-reward null`.

        Raises:
            ValueError: there are more or fewer completions than prompts, or a value that the rubric reads is
                neither text nor JSON.
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        if len(prompts) != len(completions):
            raise ValueError(f"{len(prompts)} prompts and {len(completions)} completions: give one for each")
        fields = self.fields()
        data_columns = {
            name: values
            for name, values in columns.items()
            if isinstance(values, list) and len(values) == len(completions)
        }
        rows: list[dict[str, Any]] = []
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            values_of_row = {name: values[index] for name, values in data_columns.items()}
            rows.append(_row(fields, prompt, completion=completion, columns=values_of_row))
        return self.rewards(rows)

    def rewards(self, rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
        """Return the reward of each row, as `__call__` does.

        Raises:
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        answer = self._ask("/v1/rewards", list(rows))
        errors = [error for error in answer.get("errors", []) if error]
        if errors:
            text = "%d of %d rows could not be judged, the first because of %s"
            logging.getLogger(__name__).warning(text, len(errors), len(rows), errors[0])
        rewards: list[float | None] = answer["rewards"]
        return rewards

    def judge(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the outcome of each row as a flat object, in their order.

        Raises:
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        outcomes: list[dict[str, Any]] = self._ask("/v1/judge", list(rows))["outcomes"]
        return outcomes

    def fields(self) -> dict[str, list[str]]:
        """Return the fields that the rubric of the endpoint reads, each with the columns that can have it.

        Raises:
            RuntimeError: the endpoint does not answer.
        """
        fields: dict[str, list[str]] = self._ask("/v1/rubric")["fields"]
        return fields

    def _ask(self, path: str, document: Any = None) -> Any:
        """Return the answer to a request, which is repeated while the endpoint is busy, stops or is away.

        Args:
            path: the route.
            document: what is posted as JSON; None for a GET.

        Raises:
            RuntimeError: the endpoint refuses the request, or does not answer after several tries.
        """
        url = self._url + path
        body = None if document is None else json.dumps(document, default=_plain).encode()
        tries = 0
        end = time.monotonic() + self._timeout
        while True:
            try:
                return self._answer(url, body)
            except urllib.error.HTTPError as error:
                reason = error.read(10_000).decode("utf-8", "replace")
                if error.code != _BUSY:
                    tries += 1
                is_temporary = error.code in (_BUSY, _UNAVAILABLE)
                if not is_temporary or tries >= _MOST_TRIES or time.monotonic() > end:
                    raise RuntimeError(f"{url}: {error.code} {reason}") from None
            except OSError as error:
                tries += 1
                if tries >= _MOST_TRIES:
                    raise RuntimeError(f"{url}: no answer: {error}") from None
            time.sleep(_PAUSE)

    def _answer(self, url: str, body: bytes | None) -> Any:
        """Send one request, and return the JSON of its answer."""
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(url, body, headers=headers)
        with self._opener.open(request, timeout=self._timeout) as response:
            return json.load(response)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect."""

    def redirect_request(self, *arguments: Any, **options: Any) -> None:
        return None


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> float:
    """Return the reward of one solution, as verl asks for.

    The prompt is the first of `question`, `prompt` and `raw_prompt` (verl's own: the messages that the model
    got) in `extra_info`, in `reward_model` and among the other arguments. A rubric that shows the conversation
    gets the first of these that are messages. Other fields of the rubric are read from `extra_info`. A row
    whose ground truth is None or NaN has no reference.

    Raises:
        ValueError: there is no prompt, or a value that the rubric reads is neither text nor JSON.
        RuntimeError: the solution could not be judged, because verl takes nothing but a number.
    """
    endpoint = RewardEndpoint(os.environ.get("LOCALJUDGE_URL", "http://127.0.0.1:8700"))
    columns = {} if extra_info is None else dict(extra_info)
    fields = endpoint.fields()
    prompts = list(_prompts(columns, arguments.get("reward_model"), arguments))
    if not prompts:
        names = ", ".join(str(name) for name in columns)
        raise ValueError(f"{data_source}: no prompt: extra_info has {names or 'nothing'}; give it `question`")
    if not _is_missing(ground_truth):
        is_number = isinstance(ground_truth, int | float)
        columns["reference"] = str(ground_truth) if is_number else ground_truth
    prompt = _chosen_prompt(prompts, fields)
    row = _row(fields, prompt, completion=solution_str, columns=columns)
    (reward,) = endpoint.rewards([row])
    if reward is None:
        raise RuntimeError(f"{data_source}: no reward, and verl needs one; start the endpoint without null")
    return reward


def _prompts(*mappings: Any) -> Iterator[str | list[Any]]:
    """Yield the prompts in these mappings: texts that are not empty, and lists of messages."""
    for mapping in mappings:
        if not isinstance(mapping, Mapping):
            continue
        for name in _PROMPT_NAMES:
            prompt: Any = mapping.get(name)
            if hasattr(prompt, "tolist"):
                prompt = prompt.tolist()
            if isinstance(prompt, str) and prompt.strip():
                yield prompt
            elif isinstance(prompt, list) and prompt:
                yield prompt


def _chosen_prompt(prompts: Sequence[str | list[Any]], fields: Mapping[str, Any]) -> str | list[Any]:
    """Return the first prompt; for a rubric that shows the conversation, the first one of messages, if any."""
    if _shows_turns(fields):
        for prompt in prompts:
            if not isinstance(prompt, str):
                return prompt
    return prompts[0]


def _shows_turns(fields: Mapping[str, Any]) -> bool:
    """Return whether the rubric with these fields shows the conversation."""
    return any(name in fields for name in _TURNS)


def _row(
    fields: Mapping[str, Sequence[str]], prompt: Any, completion: Any, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a row: with messages if the prompt or the completion has any, or if the rubric shows them.

    Of the columns, it has those that have fields of the rubric: `meta` for the field `meta.topic`, too.
    """
    read_columns = _columns_of_fields(fields)
    row: dict[str, Any] = {}
    for name, value in columns.items():
        if name in read_columns and not _is_missing(value):
            row[name] = value
    if isinstance(prompt, str) and isinstance(completion, str) and not _shows_turns(fields):
        row["instruction"] = prompt
        row["candidate"] = completion
    else:
        row["messages"] = _messages(prompt, "user") + _messages(completion, "assistant")
    return row


def _columns_of_fields(fields: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the columns of a dataset that the rubric can read: `meta.topic`, and `meta`, which can have it."""
    names: set[str] = set()
    for field, columns in fields.items():
        if field not in _FROM_PROMPT:
            names.update(columns)
    return names | {name.partition(".")[0] for name in names}


def _messages(turns: Any, role: str) -> list[Any]:
    """Return a text as one message of this role, and messages with the keys that the judge reads."""
    if isinstance(turns, str):
        return [{"role": role, "content": turns}]
    return [_message(turn) for turn in turns]


def _message(turn: Any) -> Any:
    """Return a message with the keys that the judge reads, without the data of images and sounds."""
    if not isinstance(turn, Mapping):
        return turn
    message = {key: turn[key] for key in _KEYS if turn.get(key) is not None}
    content = message.get("content")
    if isinstance(content, list | tuple):
        message["content"] = [_part(part) for part in content]
    if message.get("audio"):
        message["audio"] = True
    return message


def _part(part: Any) -> Any:
    """Return a part of a message; an image or a sound without its data, because the judge refuses the row."""
    if not isinstance(part, Mapping):
        return part
    part_type = str(part.get("type"))
    if part_type.startswith(_MEDIA):
        return {"type": part_type}
    return part


def _is_missing(value: Any) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain(value: Any) -> Any:
    """Return an array, or a number of a library, as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"a row has a value of type {type(value).__name__}, which is neither text nor JSON")
