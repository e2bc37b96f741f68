"""What a server takes of a request: found by trials before the first row, never from the words of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localjudge.engines.protocol import Enforced
from localjudge.engines.server.connection import RequestRefusedError


@dataclass(frozen=True, slots=True)
class RequestParts:
    """The parts of a request that a server may refuse.

    Attributes:
        enforced: what the server is asked to enforce of the answer.
        top_logprobs: the number of alternatives to list with each token; 0 for none.
        switches_thinking: whether the chat template gets the switch of thinking.
    """

    enforced: Enforced = "none"
    top_logprobs: int = 0
    switches_thinking: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The parts that a server takes.

    Attributes:
        parts: the parts.
        reply: the reply to the trial with them.
        form_refusal: why the server does not enforce the form that was asked for first; None if it does.
        logprobs_refusal: why it lists no alternatives; None if it lists them, or none were asked for.
        thinking_refusal: why thinking cannot be switched; None if it can, or need not be.
    """

    parts: RequestParts
    reply: dict[str, Any]
    form_refusal: RequestRefusedError | None = None
    logprobs_refusal: RequestRefusedError | None = None
    thinking_refusal: RequestRefusedError | None = None


@dataclass(slots=True)
class Trials:
    """Trials of requests; each is sent once.

    Attributes:
        send: sends a trial with these parts, and returns the reply.
    """

    send: Callable[[RequestParts], dict[str, Any]]
    _replies: dict[RequestParts, dict[str, Any]] = field(default_factory=dict)
    _refusals: dict[RequestParts, RequestRefusedError] = field(default_factory=dict)

    def find_accepted(self, whole: RequestParts, forms: Sequence[Enforced]) -> Accepted:
        """Find the parts that the server takes.

        A server that takes the whole request gets one trial. Another one gets trials with a form alone, most
        first, until it takes one. Then the list of alternatives is added, and the switch of thinking, and each
        stays if the server takes it: of two parts that it does not take together, the more important one stays.
        There are at most six trials, whatever a server takes.

        Args:
            whole: the parts of the whole request.
            forms: what the server is asked to enforce, most first; the first is that of the whole request.

        Raises:
            RequestRefusedError: the server refuses a request without any of these parts, too; or it refuses one
                for another reason than that it does not take it.
        """
        if self._takes(whole):
            return Accepted(whole, self._replies[whole])
        form = next((form for form in forms if self._takes(RequestParts(form))), None)
        if form is None:
            raise self._refusals[whole]
        found = RequestParts(form)
        form_refusal = logprobs_refusal = thinking_refusal = None
        if form != forms[0]:
            form_refusal = self._refusals[RequestParts(forms[0])]
        if whole.top_logprobs:
            larger = replace(found, top_logprobs=whole.top_logprobs)
            if self._takes(larger):
                found = larger
            else:
                logprobs_refusal = self._refusals[larger]
        if whole.switches_thinking:
            larger = replace(found, switches_thinking=True)
            if self._takes(larger):
                found = larger
            else:
                thinking_refusal = self._refusals[larger]
        return Accepted(found, self._replies[found], form_refusal, logprobs_refusal, thinking_refusal)

    def _takes(self, parts: RequestParts) -> bool:
        """Return whether the server answers a trial with these parts."""
        if parts not in self._replies and parts not in self._refusals:
            try:
                self._replies[parts] = self.send(parts)
            except RequestRefusedError as refused:
                if not refused.is_malformed:
                    raise
                self._refusals[parts] = refused
        return parts in self._replies
