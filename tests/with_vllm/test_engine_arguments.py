"""Tests of the names of vLLM's own arguments."""

from __future__ import annotations

from dataclasses import fields

import pytest

pytest.importorskip("vllm")

from vllm.engine.arg_utils import AsyncEngineArgs

from localjudge.secret_options import is_secret_name


def test_no_argument_of_vllm_is_taken_for_a_secret_but_the_token_of_its_hub() -> None:
    names = [field.name for field in fields(AsyncEngineArgs)]
    assert len(names) > 100
    assert [name for name in names if is_secret_name(name)] == ["hf_token"]
