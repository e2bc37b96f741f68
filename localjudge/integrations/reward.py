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
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_TRIES, _PAUSE = 5, 5.0
_TURNS = ("conversation", "conversation_with_reasoning")
_FROM_PROMPT = ("instruction", "candidate", *_TURNS)
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
        self._url, self._timeout = url.rstrip("/"), timeout
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
        fields, count = self.fields(), len(completions)
        own = {name: each for name, each in columns.items() if isinstance(each, list) and len(each) == count}
        rows = [
            _row(fields, prompt, completion, {name: own[name][place] for name in own})
            for place, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]
        return self.rewards(rows)

    def rewards(self, rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
        """Return the reward of each row, as `__call__` does.

        Raises:
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        answer = self._ask("/v1/rewards", list(rows))
        if errors := [error for error in answer.get("errors") or [] if error]:
            text = "%d of %d rows could not be judged, the first because of %s"
            logging.getLogger(__name__).warning(text, len(errors), len(rows), errors[0])
        found: list[float | None] = answer["rewards"]
        return found

    def judge(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the outcome of each row as a flat object, in their order.

        Raises:
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        found: list[dict[str, Any]] = self._ask("/v1/judge", list(rows))["outcomes"]
        return found

    def fields(self) -> dict[str, list[str]]:
        """Return the fields that the rubric of the endpoint reads, each with the columns that can have it.

        Raises:
            RuntimeError: the endpoint does not answer.
        """
        found: dict[str, list[str]] = self._ask("/v1/rubric")["fields"]
        return found

    def _ask(self, path: str, document: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None if document is None else json.dumps(document, default=_plain).encode()
        tries, end = 0, time.monotonic() + self._timeout
        while True:
            request = urllib.request.Request(self._url + path, body, headers)
            try:
                with self._opener.open(request, timeout=self._timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                said = error.read(10_000).decode("utf-8", "replace")
                tries += error.code != 429  # a busy endpoint answers later
                if error.code not in (429, 503) or tries >= _TRIES or time.monotonic() > end:
                    raise RuntimeError(f"{self._url}{path}: {error.code} {said}") from None
            except OSError as error:
                tries += 1
                if tries >= _TRIES:
                    raise RuntimeError(f"{self._url}{path}: no answer: {error}") from None
            time.sleep(_PAUSE)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **others: Any,
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
    columns, fields = dict(extra_info or {}), endpoint.fields()
    prompts = [*_prompts(columns, others.get("reward_model"), others)]
    if not prompts:
        there = ", ".join(map(str, columns)) or "nothing"
        raise ValueError(f"{data_source}: no prompt: extra_info has {there}; give it `question`")
    messages = [prompt for prompt in prompts if _shows_turns(fields) and not isinstance(prompt, str)]
    if not _is_missing(ground_truth):
        columns["reference"] = str(ground_truth) if isinstance(ground_truth, int | float) else ground_truth
    (reward,) = endpoint.rewards([_row(fields, [*messages, *prompts][0], solution_str, columns)])
    if reward is None:
        raise RuntimeError(f"{data_source}: no reward, and verl needs one; start the endpoint without null")
    return reward


def _prompts(*places: Any) -> Iterator[str | list[Any]]:
    """Yield the prompts in these mappings: texts that are not empty, and lists of messages."""
    for place in places:
        for name in ("question", "prompt", "raw_prompt"):
            found: Any = place.get(name) if isinstance(place, Mapping) else None
            found = found.tolist() if hasattr(found, "tolist") else found
            if (isinstance(found, str) and found.strip()) or (isinstance(found, list) and found):
                yield found


def _shows_turns(fields: Mapping[str, Any]) -> bool:
    return any(name in fields for name in _TURNS)


def _row(
    fields: Mapping[str, Sequence[str]], prompt: Any, completion: Any, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a row: with messages if the prompt or the completion has any, or if the rubric shows them.

    Of the columns, it has those that have fields of the rubric: `meta` for the field `meta.topic`, too.
    """
    names = {name for field, each in fields.items() if field not in _FROM_PROMPT for name in each}
    names |= {name.partition(".")[0] for name in names}
    own = {name: value for name, value in columns.items() if name in names and not _is_missing(value)}
    if isinstance(prompt, str) and isinstance(completion, str) and not _shows_turns(fields):
        return {**own, "instruction": prompt, "candidate": completion}
    return {**own, "messages": [*_messages(prompt, "user"), *_messages(completion, "assistant")]}


def _messages(given: Any, role: str) -> list[Any]:
    """Return a text as one message of this role, and messages with the keys that the judge reads."""
    if isinstance(given, str):
        return [{"role": role, "content": given}]
    return [_message(each) if isinstance(each, Mapping) else each for each in given]


def _message(given: Mapping[str, Any]) -> dict[str, Any]:
    message = {key: given[key] for key in _KEYS if given.get(key) is not None}
    if isinstance(message.get("content"), list | tuple):
        message["content"] = [_part(each) for each in message["content"]]
    return message | ({"audio": True} if message.get("audio") else {})


def _part(part: Any) -> Any:
    """Return a part of a message; an image or a sound without its data, because the judge refuses the row."""
    kind = str(part.get("type")) if isinstance(part, Mapping) else ""
    return {"type": kind} if kind.startswith(_MEDIA) else part


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _plain(value: Any) -> Any:
    """Return an array, or a number of a library, as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ValueError(f"a row has a value of type {type(value).__name__}, which is neither text nor JSON")
