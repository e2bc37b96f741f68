"""A key that is sent to a server, or given as an option of an engine, stands in no file and no output."""

from __future__ import annotations

import html
import json
import re
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, read_lines, write_rows
from scripted_server import FAST, ROWS, WHOLE, Reply, ScriptedServer, always, chat, judge_on, judged, serving

from localjudge import Judge, JudgeConfig, UsageError
from localjudge.engines.engine_options import (
    DryRunOptions,
    ServerOptions,
    TableServerOptions,
    TransformersOptions,
    VllmOptions,
)
from localjudge.errors import SettingError
from localjudge.records import Failure
from localjudge.runs.repeat import repeat
from localjudge.secret_options import is_secret_name, masked_option, masked_options, without_masked
from localjudge.secret_texts import SecretText, remember_secret, without_secrets

KEY = 'sk-Tr0ub/4dor"&3+Correct<Horse%Staple-Battery'
ENGINE = [part for name, value in FAST.items() for part in ("--engine-arg", f"{name}={value}")]


def escaped(text: str) -> str:
    """Return a text with every other character as a JSON escape, whose digits are small or capital."""
    units = [f"{ord(each):04x}" for each in text]
    digits = [unit.upper() if place % 4 else unit for place, unit in enumerate(units)]
    return "".join(
        json.dumps(each)[1:-1] if place % 2 else f"\\u{digits[place]}" for place, each in enumerate(text)
    )


def quoted_in_small_letters(text: str) -> str:
    """Return a text as in a URL, with small hexadecimal digits."""
    quoted = urllib.parse.quote(text, safe="")
    return re.sub("%..", lambda found: found[0].lower(), quoted)


def read_back(text: str) -> str:
    """Return a text with its encodings undone, so that a key in it reads as it is."""
    for _ in range(3):
        text = re.sub(r"\\+u00([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), text)
        text = re.sub(r'\\+(["/])', r"\1", html.unescape(urllib.parse.unquote(text)))
    return text.replace("\0", "")


def refused(message: str) -> Reply:
    return 400, {"error": {"message": message}}


def chunked(*pieces: bytes) -> bytes:
    """Return a reply whose body is sent in these chunks."""
    head = b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + body + b"0\r\n\r\n"


def in_a_header(_: str) -> Reply:
    return 307, ({"Location": f"http://other.invalid/?key={urllib.parse.quote(KEY, safe='')}"}, b"")


ECHOES: dict[str, Callable[[str], Reply | None]] = {
    "a message": lambda text: refused(f"Incorrect API key provided: Bearer {KEY}"),
    "text": lambda text: (400, f"no such key: {KEY}".encode()),
    "an answer": lambda text: chat(WHOLE.replace("Seen.", json.dumps(f"Key {KEY}")[1:-1])),
    "no answer": lambda text: chat(f"I cannot: {KEY}"),
    "a refusal": lambda text: (
        200,
        {"choices": [{"message": {"content": None, "refusal": f"No: {KEY}"}, "finish_reason": "stop"}]},
    ),
    "the name of a model": lambda text: (
        200,
        {"model": f"tiny {KEY}", **json.loads(json.dumps(chat(WHOLE)[1]))},
    ),
    "JSON escapes": lambda text: (400, f'{{"error": "key {escaped(KEY)}"}}'.encode()),
    "JSON in JSON": lambda text: refused(json.dumps({"headers": json.dumps({"Authorization": KEY})})),
    "a URL": lambda text: refused(f"GET /?key={quoted_in_small_letters(KEY)} (it is {KEY})"),
    "a URL in a URL": lambda text: refused(urllib.parse.quote(urllib.parse.quote(KEY, safe=""), safe="")),
    "HTML": lambda text: (400, f"<p>{html.escape(KEY)}</p>".encode()),
    "a header": in_a_header,
    "the end of what is kept": lambda text: refused("x" * 270 + KEY + "y" * 100),
    "two chunks": lambda text: chunked(f'{{"error": "{KEY[:9]}'.encode(), f'{escaped(KEY[9:])}"}}'.encode()),
    "a message that is cut": lambda text: refused(f"Incorrect API key provided: {KEY[:30]}"),
    "a message without its beginning": lambda text: refused(f"{KEY[15:]} is no key"),
    "UTF-16": lambda text: (400, f"no key {KEY}".encode("utf-16")),
    "a line that is not HTTP": lambda text: f"HTTP/9 {KEY}\r\n\r\n".encode(),
    "a header that is none": lambda text: f"HTTP/1.1 200 OK\r\n{KEY}\r\n\r\n".encode(),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_key_that_a_server_repeats_is_in_no_file_and_no_output(
    echo: Callable[[str], Reply | None],
    short_rubric: Path,
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", KEY)
    rows, run = write_rows(tmp_path / "rows.jsonl", 2), tmp_path / "run"
    with serving(lambda text, before: echo(text)) as server:
        given = ["--engine", "server", "--server", server.url, "--rubric", short_rubric, *ENGINE]
        ended = [
            cli("score", rows, *given, "--out", run),
            cli("--log-json", "score", rows, *given, "--out", tmp_path / "logged"),
            cli("show", run),
            cli("export", run, "--out", tmp_path / "rows.csv"),
            cli("report", run, "--out", tmp_path / "page.html"),
        ]
        assert server.asked, "a row was sent"
    assert ended[0].code in (0, 3)
    outputs = [each.out + each.err for each in ended]
    files = [each.read_bytes().decode("latin-1") for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) >= 8
    for text in outputs + files:
        read = read_back(text)
        assert KEY[: len(KEY) // 2 + 2] not in read
        assert KEY[-len(KEY) // 2 - 2 :] not in read


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_key_that_a_server_repeats_before_the_first_row_is_hidden(
    status: int, cli: Cli, short_rubric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", KEY)
    rows = write_rows(tmp_path / "rows.jsonl", 1)

    def page(server: ScriptedServer, path: str) -> Reply:
        return status, {"data": [{"id": KEY}], "error": f"Bearer {KEY}"}

    with serving(lambda text, before: chat(WHOLE)) as server:
        monkeypatch.setattr(server, "reply", lambda path, body: page(server, path))
        given = ["--engine", "server", "--server", server.url]
        doctor = cli("doctor", *given)
        scored = cli("score", rows, *given, *ENGINE, "--model", "tiny", "--out", tmp_path / "run")
    assert (doctor.code, scored.code) == (1, 2)
    for text in (doctor.out, doctor.err, scored.out, scored.err):
        assert KEY[:20] not in read_back(text)


def test_a_key_that_no_header_can_have_is_one_line_without_it(
    short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("sk-secret half", "sk-secret\nline", "sk-secrét-key"):
        monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", key)
        with pytest.raises(UsageError, match="LOCALJUDGE_SERVER_KEY") as refusal:
            Judge(rubric=short_rubric, engine="server", engine_args={"server": "http://127.0.0.1:9"})
        assert "sk-sec" not in str(refusal.value)


def test_the_line_end_of_a_file_is_no_part_of_a_key(
    short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", f"{KEY}\n")
    with serving(lambda text, before: chat(WHOLE)) as server:
        Judge(rubric=short_rubric, engine="server", engine_args={"server": server.url})
        assert server.paths


@pytest.fixture
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process know no secret before the test, and none of the test's after it."""
    monkeypatch.setattr("localjudge.secret_texts._known", {})


@pytest.mark.usefixtures("no_secrets")
def test_the_digits_of_a_key_are_hidden_in_texts_and_stay_in_numbers(
    short_rubric: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "12345678"
    monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", key)
    rows, run = write_rows(tmp_path / "rows.jsonl", 2), tmp_path / "run"
    content = [{"token": each, "logprob": -0.12345678, "top_logprobs": []} for each in WHOLE]
    document = {
        "created": 1712345678,
        "choices": [{
            "message": {"content": WHOLE.replace("Seen.", f"Seen {key}.")},
            "logprobs": {"content": content}, "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 11, "completion_tokens": 12345678},
    }  # fmt: skip
    with serving(lambda text, before: (200, document)) as server:
        given = ["--engine", "server", "--server", server.url, "--rubric", short_rubric, *ENGINE]
        ended = cli("score", rows, *given, "--out", run)
    assert ended.code == 0, ended.err
    lines = list(read_lines(run))
    assert [line["rationale"] for line in lines] == ["Seen ***."] * 2
    assert [line["output_tokens"] for line in lines] == [12345678] * 2


@pytest.mark.usefixtures("no_secrets")
@pytest.mark.parametrize(
    ("key", "is_warned"), [("password", True), ("12345678", True), ("Tr0ub4dor&3", False), ("short", False)]
)
def test_a_key_whose_text_an_answer_can_have_is_a_warning_once(
    key: str,
    is_warned: bool,
    short_rubric: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", key)
    with serving(always(chat(WHOLE))) as server:
        for _ in range(2):
            with judge_on(server, short_rubric) as judge:
                list(judge.score(ROWS[:1]))
    warned = [message for message in caplog.messages if "LOCALJUDGE_SERVER_KEY" in message]
    assert len(warned) == int(is_warned)
    assert not [message for message in warned if key in message]


@pytest.mark.usefixtures("no_secrets")
@pytest.mark.parametrize("length", [40, 60, 200])
def test_a_key_of_the_server_as_a_name_that_stands_twice_in_its_reply_is_hidden(
    length: int, short_rubric: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ("sk-" + "0aB1cD2eF3" * 20)[:length]
    monkeypatch.setenv("LOCALJUDGE_SERVER_KEY", key)
    reply: Reply = (200, f'{{"choices": [{{"{key}": 1, "{key}": 2}}]}}'.encode())
    outcome = judged(always(reply), short_rubric, ROWS[:1])["r0"]
    assert isinstance(outcome, Failure)
    assert "'***' twice" in outcome.error


@pytest.mark.parametrize(
    "url",
    ["http://me:{key}@127.0.0.1:port", "me:{key}@127.0.0.1", "ftp://me:{key}@127.0.0.1", "http://127.0.0.1/?k={key}",
     "http://me:{key}@[::1", "http://me:{key}@127.0.0.1/#{key}"],
)  # fmt: skip
def test_a_key_in_an_address_that_is_refused_is_not_printed(url: str, short_rubric: Path) -> None:
    with pytest.raises(UsageError, match=r"^`server` ") as refusal:
        Judge(rubric=short_rubric, engine="server", engine_args={"server": url.format(key="hunter2")})
    assert "hunter2" not in str(refusal.value)


def test_a_secret_is_found_in_any_mix_of_its_encodings_and_nothing_else_is_changed() -> None:
    secret = SecretText(KEY)
    forms = [
        KEY, escaped(KEY), json.dumps(KEY)[1:-1], json.dumps(json.dumps(KEY))[3:-3],
        urllib.parse.quote(KEY, safe=""), html.escape(KEY), repr(KEY.encode())[2:-1],
        KEY[:10] + escaped(KEY[10:20]) + urllib.parse.quote(KEY[20:]),
    ]  # fmt: skip
    for form in forms:
        assert secret.hide(f"a {form} b {form}") == "a *** b ***"
    for text in (KEY[:20], KEY[-20:], KEY[::-1], KEY.upper(), "plain text", "\\" * 5000, "%25" * 2000):
        assert secret.hide(text) == text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("hf_token", True), ("api-key", True), ("apiKey", True), ("APIKey", True), ("X-Api-Key", True),
        ("aws_secret_access", True), ("password", True), ("passwd", True), ("credentials", True),
        ("Authorization", True), ("max_num_batched_tokens", False), ("tokenizer", False), ("max_tokens", False),
        ("tokenizer_mode", False), ("skip_tokenizer_init", False), ("kv_cache_dtype", False), ("monkey", False),
        ("eos_token", False), ("image_token", False), ("keyboard", False), ("secretary", False),
        ("image_start_token", False), ("think_end_token", False), ("boi_token", False), ("endToken", False),
        ("long_prefill_token_threshold", False), ("speculative_token_tree", False), ("token_ids", False),
        ("suffix_decoding_min_token_prob", False), ("encoder_cudagraph_token_budgets", False),
        ("auth", True), ("hf_auth", True), ("Cookie", True), ("X-Amz-Signature", True), ("sig", True),
        ("jwt", True), ("authentication", True), ("author", False), ("design", False), ("signal", False),
        ("image_token_key", True), ("token_for_images", True), ("access_token", True), ("tree_token", True),
    ],
)  # fmt: skip
def test_a_name_is_that_of_a_secret_by_its_words(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) == is_secret


@pytest.mark.parametrize(
    ("name", "value", "is_shown"),
    [
        ("long_prefill_token_threshold", "2048", True),
        ("token", "2048", True),
        ("token", "-0.5", True),
        ("token", "12345678", False),
        ("token", "2048 ", True),
        ("token", "a2048", False),
        ("token", '"2048"', False),
        ("keys", "[1, 2]", True),
        ("keys", '["first-key", 2]', False),
    ],
)
def test_a_short_number_is_no_secret_whatever_its_name(name: str, value: str, is_shown: bool) -> None:
    masked = masked_option(name, value)
    assert masked.shown == (value if is_shown else "***")
    assert (value in masked.secrets) != is_shown


def test_the_parts_of_a_secret_option_are_secrets_of_their_own() -> None:
    assert {"first-key", "other-key"} <= set(masked_option("keys", '["first-key", {"b": "other-key"}]').secrets)


def test_the_parts_of_an_option_that_are_secrets_are_masked_and_left_out_where_the_run_is_repeated() -> None:
    given = {
        "hf_token": "hf_abcdefghijklm",
        "trust_token": "true",
        "max_num_batched_tokens": "8192",
        "gpu_memory_utilization": "0.8",
        "hf_overrides": json.dumps(
            {
                "num_key_value_heads": 8,
                "eos_token": "</s>",
                "image_start_token": "<img>",
                "headers": {"Authorization": "Bearer abcdefghijkl"},
                "pairs": [["X-Api-Key", "mnopqrstuv"]],
                "url": "https://me:wxyzwxyz@host/a?token=abcabcabc",
            }
        ),
        "load": "{'password': 'defdefdef'}",
    }
    shown = masked_options(given)
    secrets = {each for name, value in given.items() for each in masked_option(name, value).secrets}
    assert secrets >= {"hf_abcdefghijklm", "abcdefghijkl", "mnopqrstuv", "wxyzwxyz", "abcabcabc", "defdefdef"}
    assert not [each for each in secrets if each in json.dumps(shown)]
    same = {"trust_token", "max_num_batched_tokens", "gpu_memory_utilization"}
    assert {name for name in given if given[name] == shown[name]} == same
    assert json.loads(shown["hf_overrides"])["num_key_value_heads"] == 8
    left = without_masked(shown)
    assert left.keys() == given.keys() - {"hf_token"}
    assert json.loads(left["hf_overrides"]) == {
        "num_key_value_heads": 8, "eos_token": "</s>", "image_start_token": "<img>",
        "headers": {}, "pairs": [], "url": "https://host/a?",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown", "left"),
    [
        ("Authorization: Basic c2VjcmV0", "Authorization: ***", ""),
        ("Authorization: token c2VjcmV0, next", "Authorization: ***, next", ", next"),
        ("bearer c2VjcmV0 end", "bearer *** end", " end"),
        ("token 'c2VjcmV0'", "token '***'", ""),
        ("Cookie: id=c2VjcmV0; b=c2VjcmV0", "Cookie: ***", ""),
        ("run --api-key c2VjcmV0 --x", "run --api-key *** --x", "run  --x"),
        ("run --token 'c2VjcmV0 c2VjcmV0' --x", "run --token '***' --x", "run  --x"),
        ("run --token --x", "run --token --x", "run --token --x"),
        ("url=https://host/?sig=c2VjcmV0&b=1", "url=https://host/?sig=***&b=1", "url=https://host/?&b=1"),
        ('["--api-key", "c2VjcmV0", "--x"]', '["--api-key", "***", "--x"]', '["--x"]'),
        ('{"a": ["HF_TOKEN", "c2VjcmV0"]}', '{"a": ["HF_TOKEN", "***"]}', '{"a": []}'),
        ('{"auth": ["c2VjcmV0", "c2VjcmV0"]}', '{"auth": ["***", "***"]}', '{"auth": []}'),
        ('["a", "password", "c2VjcmV0", "tokenizer", "b"]',
         '["a", "password", "***", "tokenizer", "b"]', '["a", "tokenizer", "b"]'),
        ('["query","key","value"]', '["query","key","value"]', '["query","key","value"]'),
        ('["the key idea", "value", "b"]', '["the key idea", "value", "b"]', '["the key idea", "value", "b"]'),
        ('{"url": "https://host/?X-Amz-Signature=c2VjcmV0&sig=c2VjcmV0&b=1"}',
         '{"url": "https://host/?X-Amz-Signature=***&sig=***&b=1"}', '{"url": "https://host/?&&b=1"}'),
    ],
)  # fmt: skip
def test_a_secret_in_a_header_a_command_or_a_url_is_masked_and_left_out_where_the_run_is_repeated(
    value: str, shown: str, left: str
) -> None:
    masked = masked_option("option", value)
    assert masked.shown == shown
    assert bool(masked.secrets) == ("c2VjcmV0" in value)
    assert not [each for each in masked.secrets if "c2VjcmV0" not in each]
    assert without_masked({"option": shown}) == {"option": left}


@pytest.mark.parametrize("part", ["a", "a ", "a=", "token ", "token=", "--key ", "cookie: ", " "])
def test_secrets_are_looked_for_in_a_long_text_in_a_time_that_grows_with_its_length(part: str) -> None:
    text = part * 100_000
    begun = time.perf_counter()
    masked_option("option", text)
    without_masked({"option": f"{text}***"})
    assert time.perf_counter() - begun < 10, "where the time grows with the square, it is minutes"


@pytest.mark.usefixtures("no_secrets")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_secret_that_begins_with_another_one_is_hidden_whole(is_reversed: bool) -> None:
    secrets = ["hunter2hunter2", "hunter2hunter2-and-the-rest-of-it-1234567890abcdef"]
    for secret in sorted(secrets, reverse=is_reversed):
        assert remember_secret(secret)
    assert without_secrets(f"a {secrets[1]} b {secrets[0]} c") == "a *** b *** c"


def test_an_option_that_is_a_secret_is_in_no_file_of_the_run_which_the_same_command_continues(
    model: Path, short_rubric: Path, tmp_path: Path, cli: Cli
) -> None:
    secret = "hf_ThisIsNotForYou"
    rows, run = write_rows(tmp_path / "rows.jsonl", 4), tmp_path / "run"
    given = ["--engine", "dry-run", "--engine-arg", f"hf_token={secret}", "--engine-arg", "max_model_len=4096"]
    command = ["score", rows, "--model", model, "--rubric", short_rubric, *given, "--out", run]
    ended = [cli(*command), cli("--log-json", *command), cli("show", run)]
    assert [each.code for each in ended] == [0, 0, 0]
    starts = json.loads((run / "run.json").read_text())["starts"]
    recorded = [start["config"]["engine_args"] for start in starts]
    assert recorded == [{"hf_token": "***", "max_model_len": "4096"}] * 2
    texts = [each.read_text() for each in run.iterdir() if each.is_file()]
    assert not [text for text in texts + [each.out + each.err for each in ended] if secret in text]
    assert secret not in repr(JudgeConfig.from_settings(engine_args={"hf_token": secret}))
    assert repeat(run, 2).noise.rows == 2


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (VllmOptions, 'hf_overrides=[{"api_key": "hunter2"}]'),
        (VllmOptions, "hf_overrides=api_key=hunter2"),
        (VllmOptions, 'hf_overrides={"api_key": "hunter2", "head_dtype": "float32"}'),
        (TransformersOptions, "dtype=api_key=hunter2"),
        (DryRunOptions, "rate=api_key=hunter2"),
        (ServerOptions, "patience=api_key=hunter2"),
    ],
)
def test_an_option_that_is_refused_is_shown_without_its_secret(options: Any, given: str) -> None:
    name, _, value = given.partition("=")
    with pytest.raises(SettingError) as refused:
        options.parse({name: value})
    assert f"{name}=" in str(refused.value)
    assert "***" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_options_that_were_read_are_shown_without_values() -> None:
    given = {"hf_token": "hunter2", "max_model_len": "4096"}
    read = [
        VllmOptions.parse(given),
        DryRunOptions.parse(given),
        TableServerOptions.parse({"server": "http://127.0.0.1/hunter2", "served_model": "hunter2"}),
    ]
    for options in read:
        assert "hunter2" not in f"{options} {options!r}"


def test_a_command_for_a_server_with_a_secret_is_not_printed(model: Path, tmp_path: Path, cli: Cli) -> None:
    table = tmp_path / "table.npz"
    command = ["serve", "--print-vllm-flags", "--model", model, "--table", table, "--engine-arg"]
    secret = cli(*command, 'hf_overrides={"rope_theta": 1.0, "api_key": "hunter2"}')
    assert secret.code == 2
    assert secret.out == ""
    assert "--engine-arg hf_overrides=" in secret.err
    assert "hunter2" not in secret.err
    assert not table.exists()
    assert cli(*command, 'hf_overrides={"rope_theta": 1.0}').code == 0


def test_an_error_of_a_library_and_a_traceback_have_no_secret(
    model: Path, short_rubric: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_ThisIsNotForYou"
    rows = write_rows(tmp_path / "rows.jsonl", 1)

    def broken(*given: object, **options: object) -> None:
        raise ZeroDivisionError(f"Validation failed: input_value={{'hf_token': '{secret}'}}")

    monkeypatch.setattr("localjudge.engines.dry_run.DryRunEngine.__init__", broken)
    given = ["--engine", "dry-run", "--engine-arg", f"hf_token={secret}", "--out", tmp_path / "run"]
    for form in ([], ["--log-json"]):
        ended = cli(*form, "score", rows, "--model", model, "--rubric", short_rubric, *given)
        assert ended.code == 1
        assert "ZeroDivisionError" in ended.err
        assert secret not in ended.err


def test_the_command_that_continues_a_stopped_run_is_printed_without_secrets(
    model: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("localjudge.cli.judge_options.settle_environment", stopped)
    rows = write_rows(tmp_path / "rows.jsonl", 1)
    ended = cli("score", rows, "--engine", "dry-run", "--engine-arg", "api_key=ab", "--engine-arg=token=cd",
                "--out", tmp_path / "run")  # fmt: skip
    assert ended.code == 130
    assert "--engine-arg 'api_key=***' '--engine-arg=token=***'" in ended.err
