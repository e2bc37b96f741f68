"""The prompt of a rubric: the template of a row's turn, and what stands before it."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from localjudge.rows.conversation import CONVERSATION, CONVERSATIONS, WITH_REASONING
from localjudge.rows.criteria import CRITERION, NUMBERED_CRITERIA
from localjudge.rows.pair_columns import PAIR, SYSTEMS
from localjudge.rubrics.aspect import RubricPart
from localjudge.rubrics.aspect_text import ANSWER_FORMAT, ASPECTS
from localjudge.rubrics.example import Example

PLACEHOLDER = re.compile(r"\{\$([^{}]*)\}")
BARE = re.compile(r"(?<![\w{$}])\{([A-Za-z_][\w.]*)\}(?![\w{}])")
"""A name in braces without a dollar sign, which is sent as it stands."""
_FIELD = re.compile(r"[^\W\d][\w-]*(\.[\w-]+)*")


class Template(RubricPart):
    """The text of a prompt with placeholders.

    Attributes:
        template: the text of the row's turn.
        system: the text of a turn of the system before all others; empty for none.
        examples: rows and their answers, turns before the row's.
        empty_candidate: what becomes of a row with an empty candidate.
        guard: whether fields stay in their fences and show invisible characters.
    """

    template: str
    system: str = ""
    examples: list[Example] = Field(default_factory=list)
    empty_candidate: Literal["judge", "fail"] = "judge"
    guard: bool = False

    @model_validator(mode="after")
    def _check_placeholders(self) -> Self:
        used = PLACEHOLDER.findall(self.template)
        for field in used:
            if not _FIELD.fullmatch(field):
                name = re.sub(r"\W+", "_", field).strip("_").lower()
                advice = f'; write {{${name}}}, and give --column "{name}={field}"' * bool(
                    _FIELD.fullmatch(name)
                )
                raise ValueError(f"template: {{${field}}} is not a placeholder; use {{$column}}{advice}")
        if missing := [name for name in PAIR if name not in used]:
            if len(missing) < len(PAIR):
                raise ValueError(
                    f"template: placeholder {{${missing[0]}}} is missing; it compares two responses"
                )
            if not {"candidate", *CONVERSATIONS} & {*used}:
                bare = {"candidate", CONVERSATION, *PAIR}.intersection(BARE.findall(self.template))
                advice = f"write {{${min(bare)}}} for {{{min(bare)}}}" if bare else "add it, or {$conversation}"
                raise ValueError(f"template: placeholder {{$candidate}} is missing; {advice}")
        elif asked := [name for name in (CRITERION, NUMBERED_CRITERIA) if name in used]:
            raise ValueError(f"template: {{${asked[0]}}} checks one response; remove it, or compare without it")
        elif "candidate" in used:
            raise ValueError("template: {$candidate} stands beside {$candidate_a}; remove one of the two")
        for one, other in ((CONVERSATION, WITH_REASONING), (CRITERION, NUMBERED_CRITERIA)):
            if {*used} >= {one, other}:
                raise ValueError(f"template: {{${one}}} stands beside {{${other}}}; remove one of the two")
        if named := [name for name in used if name in ("id", *(SYSTEMS if not missing else ("system",)))]:
            raise ValueError(f"template: {{${named[0]}}} tells the judge whose response it is; remove it")
        for field in PLACEHOLDER.findall(self.system):
            if field not in (ASPECTS, ANSWER_FORMAT):
                raise ValueError(
                    f"system: {{${field}}} is not the same for all rows; only {{${ASPECTS}}} and "
                    f"{{${ANSWER_FORMAT}}} can stand here"
                )
        return self

    @property
    def text(self) -> str:
        """The system prompt and the template, with their placeholders."""
        return f"{self.system}\n{self.template}"
