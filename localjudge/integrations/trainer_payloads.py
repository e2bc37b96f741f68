"""The requests of trainers, as their own code sends them, read as records; and the answers that they expect.

OpenRLHF  {"query": [prompt + response …], "prompts": […], "labels": […]}  → {"rewards": […], "scores": …}
slime     {"prompt": …, "response": …, "label": …}                        → a number
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

END_OF_TURN = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</s>")
"""Tokens that end a turn. A trainer sends the response with them; they are not part of its text."""


def openrlhf_records(payload: Any) -> list[dict[str, Any]]:
    """Return the records in a request of OpenRLHF.

    Raises:
        ValueError: it is not such a request.
    """
    queries, prompts = _texts(payload, "query"), _texts(payload, "prompts")
    labels = payload.get("labels") or [None] * len(queries)
    if not isinstance(labels, list) or not len(queries) == len(prompts) == len(labels):
        raise ValueError("query, prompts and labels must be lists of the same length")
    records = []
    for place, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True), 1):
        if not query.startswith(prompt):
            raise ValueError(f"query {place} does not begin with its prompt, so its response is not known")
        records.append(_record(prompt, query.removeprefix(prompt), label))
    return records


def openrlhf_answer(rewards: Sequence[float]) -> dict[str, Any]:
    """Return what OpenRLHF expects."""
    return {"rewards": list(rewards), "scores": list(rewards), "extra_logs": {}}


def slime_record(payload: Any) -> dict[str, Any]:
    """Return the record in a request of slime, whose prompt is a text or a list of messages.

    Raises:
        ValueError: it is not such a request.
    """
    if not isinstance(payload, Mapping) or not isinstance(payload.get("response"), str):
        raise ValueError("give an object with prompt, response and label")
    return _record(payload.get("prompt"), payload["response"], payload.get("label"))


def _record(prompt: Any, response: str, label: Any) -> dict[str, Any]:
    text = response.rstrip()
    ending = next((each for each in END_OF_TURN if text.endswith(each)), "")
    asked = {"messages": prompt} if isinstance(prompt, list) else {"instruction": prompt}
    reference = {} if label is None else {"reference": label if isinstance(label, str) else str(label)}
    return {**asked, "candidate": text.removesuffix(ending) if ending else response, **reference}


def _texts(payload: Any, name: str) -> list[str]:
    found = payload.get(name) if isinstance(payload, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"give {name}: a list of texts")
    return found
