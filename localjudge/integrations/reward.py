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
import math
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

_TRIES, _PAUSE = 5, 5.0


class RewardEndpoint:
    """A function of prompts and completions that asks a running `localjudge serve --reward FORMULA`.

    Args:
        url: the address of the endpoint.
        token: the endpoint's token; None takes the environment's LOCALJUDGE_TOKEN, if there is one.
        timeout: seconds to wait for an answer.
    """

    __name__ = "localjudge"  # trainers name the columns of their logs by it

    def __init__(self, url: str, token: str | None = None, timeout: float = 600.0) -> None:
        self._url, self._timeout = url.rstrip("/"), timeout
        self._token = token or os.environ.get("LOCALJUDGE_TOKEN")
        # Neither a proxy of the environment nor a redirect leads elsewhere.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return a reward for each completion, as TRL asks for.

        Args:
            prompts: texts, or lists of messages.
            completions: texts, or lists of messages whose last one is judged.
            columns: further columns of the dataset, a list each. Those that the rubric uses are read, such as
                `reference`; other lists are ignored.

        Raises:
            ValueError: there are more or fewer completions than prompts.
        """
        if len(prompts) != len(completions):
            raise ValueError(f"{len(prompts)} prompts and {len(completions)} completions: give one for each")
        own = {
            name: values
            for name, values in columns.items()
            if isinstance(values, list) and len(values) == len(completions)
        }
        records = [
            _record(prompt, completion, {name: values[place] for name, values in own.items()})
            for place, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]
        return self.rewards(records)

    def rewards(self, rows: Sequence[Mapping[str, Any]]) -> list[float]:
        """Return the reward of each row.

        Raises:
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        found: list[float] = self._post("/v1/rewards", list(rows))["rewards"]
        return found

    def judge(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the outcome of each row as a flat object, in their order.

        Raises:
            RuntimeError: the endpoint refuses the rows, or does not answer after several tries.
        """
        found: list[dict[str, Any]] = self._post("/v1/judge", list(rows))["outcomes"]
        return found

    def _post(self, path: str, document: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = json.dumps(document).encode()
        for attempt in range(1, _TRIES + 1):
            request = urllib.request.Request(self._url + path, body, headers)
            try:
                with self._opener.open(request, timeout=self._timeout) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                said = error.read(10_000).decode("utf-8", "replace")
                if error.code not in (429, 503) or attempt == _TRIES:
                    raise RuntimeError(f"{self._url}{path}: {error.code} {said}") from None
            except OSError as error:
                if attempt == _TRIES:
                    raise RuntimeError(f"{self._url}{path}: no answer: {error}") from None
            time.sleep(_PAUSE)
        raise AssertionError("the last try returns or raises")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> float:
    """Return the reward of one solution, as verl asks for; `extra_info` has the `question`.

    A row whose ground truth is None or NaN has no reference.
    """
    url = os.environ.get("LOCALJUDGE_URL", "http://127.0.0.1:8700")
    asked = dict(extra_info or {})
    instruction = asked.get("question") or asked.get("prompt") or ""
    row = {"instruction": instruction, "candidate": solution_str}
    if ground_truth is not None and not (isinstance(ground_truth, float) and math.isnan(ground_truth)):
        row["reference"] = str(ground_truth)
    return RewardEndpoint(url).rewards([row])[0]


def _record(prompt: Any, completion: Any, columns: dict[str, Any]) -> dict[str, Any]:
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    asked = {"instruction": prompt} if isinstance(prompt, str) else {"messages": prompt}
    return {**columns, **asked, "candidate": text}
