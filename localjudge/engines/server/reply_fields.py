"""Fields of a server's reply that may be missing, or of another type, without harm to the answer."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

_MOST_TOKENS = 2**31
"""More tokens than a prompt or an answer can have."""


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < _MOST_TOKENS else 0


def _or_none(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


def _or_nan(value: Any) -> Any:
    return math.nan if value is None else value


OR_NONE = WrapValidator(_or_none)
"""Reads a value of another type as None: the server does not say."""
TokenCount = Annotated[int, BeforeValidator(_count)]
"""A number of tokens; 0 if the server's number is none."""

Logprob = Annotated[float, Field(strict=True), BeforeValidator(_or_nan)]
"""A log-probability; NaN if the server's is null. A text is not a number."""


class Usage(BaseModel):
    """The numbers of tokens of a prompt and its answer; 0 if the server does not say."""

    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0
