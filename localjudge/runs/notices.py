"""Notices: warnings that a person must read before the scores of a run.

A notice has the form "kind: explanation". A title, which has no space for the explanation, has only the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localjudge.engines.protocol import NOT_ENFORCED
from localjudge.errors import UsageError
from localjudge.given_template import NO_TEMPLATE, NO_TEMPLATE_NOTICE
from localjudge.models.catalogue import BUNDLED
from localjudge.records.outcome_columns import MODEL, NOTICE
from localjudge.runs.named_models import NamedModels
from localjudge.runs.run_manifest import RunManifest

DRY_RUN = "dry-run"
"""The name of the engine of a dry run, which is none."""
IMPORTED = "elsewhere"
"""The name of the engine of scores that were imported, which is none."""
SERVER = "server"
"""The name of the engine that is a server."""
SEVERAL_JUDGES = "several judges"


def notices(manifest: RunManifest, *, complete: bool, rows: int, candidates_cut: int) -> tuple[str, ...]:
    """Return the notices of a run, most serious first.

    Args:
        manifest: the manifest of the run.
        complete: whether every row has its line.
        rows: number of lines of the run; used only if the run is not complete.
        candidates_cut: number of candidates (or conversations before them) that the judge saw only in part.
    """
    lines = []
    lines += _judge_notices(manifest)
    lines += _server_notices(manifest)
    lines += _prompt_notices(manifest)
    if not complete:
        lines.append(_incomplete_notice(manifest, rows))
    lines += _row_notices(manifest)
    if manifest.rubric.prompt.guard:
        lines.append("guarded: made with --guard; do not compare with scores made without it")
    if candidates_cut:
        lines.append(_truncated_notice(manifest, candidates_cut))
    lines += manifest.inherited_notices
    return tuple(dict.fromkeys(lines))


def _judge_notices(manifest: RunManifest) -> list[str]:
    """Return the notice on the model that judges, or that none does."""
    if manifest.settings.engine == DRY_RUN:
        return ["dry run: no model was asked, and the scores mean nothing"]
    if not manifest.notice:
        return []
    if manifest.model.name != BUNDLED:
        return [manifest.notice]
    if manifest.rubric.is_default:
        return [
            "bundled model: it only compares words with the reference; use its scores to try the program, not "
            "as results"
        ]
    return [
        "bundled model: it was trained for the prompt of just-eval alone; its scores and rationales by any "
        "other prompt mean nothing"
    ]


def _server_notices(manifest: RunManifest) -> list[str]:
    """Return the notice on what is not known of the model on a server."""
    if manifest.settings.engine != SERVER:
        return []
    if manifest.model.files:
        return ["served model: its weights are the server's, and their digests are unknown"]
    return [
        f"unverified: {manifest.model.name} is known by the name that its server gives, and the server applied "
        "no token table"
    ]


def _prompt_notices(manifest: RunManifest) -> list[str]:
    """Return the notices on prompts that are not as the model expects them, or a model that has changed."""
    settings = manifest.settings
    lines = []
    if settings.chat_template == NO_TEMPLATE:
        lines.append(NO_TEMPLATE_NOTICE)
    if settings.enforced in NOT_ENFORCED:
        lines.append(NOT_ENFORCED[settings.enforced])
    lines += NamedModels.of_run(manifest).notices
    changes = manifest.model.changed_since_verified
    if changes:
        from localjudge.models.digests import in_words

        lines.append(f"changed model: its files differ from the verified files ({in_words(changes)})")
    warnings = [start.tokenization_warning for start in manifest.starts if start.tokenization_warning]
    if warnings:
        lines.append(f"tokenizer: {warnings[-1]}")
    if settings.engine != IMPORTED:
        lines += [f"prompt: {problem}" for problem in manifest.rubric.problems]
    return lines


def _incomplete_notice(manifest: RunManifest, rows: int) -> str:
    """Return the notice on a run that is not complete, with the number of its lines."""
    start = manifest.last_start
    planned = start.rows if manifest.shard else start.input_rows
    if planned and rows < planned:
        judged = f"{rows:,} of {planned:,} rows"
    else:
        judged = f"{rows:,} rows, not all"
    return f"incomplete: {judged}; means include only these rows"


def _row_notices(manifest: RunManifest) -> list[str]:
    """Return the notices on rows and columns that the run lacks."""
    lines = []
    if manifest.shard:
        lines.append(f"part: shard {manifest.shard} of the input")
    start = manifest.last_start
    if start.pairing is not None and start.pairing.orders == 1:
        lines.append("one order: a preference includes the judge's preference for a place, such as the first")
    if start.missing:
        systems = ", ".join(f"{name} to {count}" for name, count in start.missing.items())
        lines.append(f"missing responses: {systems} of the instructions; these pairs could not be formed")
    for earlier_start in manifest.starts:
        lines += [f"unread column: {line}" for line in earlier_start.late_columns]
    return lines


def _truncated_notice(manifest: RunManifest, candidates_cut: int) -> str:
    """Return the notice on candidates that the judge saw only in part."""
    candidates = "1 candidate" if candidates_cut == 1 else f"{candidates_cut} candidates"
    settings = manifest.settings
    if settings.on_overflow == "truncate-candidate" and settings.max_result_tokens is None:
        return f"truncated: {candidates} did not fit the model's context; the judge saw only the beginning"
    return f"truncated: the judge did not see all of {candidates}: results of tools were cut"


def together(names: Sequence[str], notices_of_runs: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the notices of several runs; a notice that only some of them have names these runs.

    Args:
        names: the names of the runs.
        notices_of_runs: the notices of each run.
    """
    runs_of_notice: dict[str, list[str]] = {}
    for name, run_notices in zip(names, notices_of_runs, strict=True):
        for notice in run_notices:
            runs_of_notice.setdefault(notice, []).append(name)
    lines = []
    for notice, runs in runs_of_notice.items():
        if len(runs) == len(names):
            lines.append(notice)
        else:
            kind, colon, explanation = notice.partition(":")
            lines.append(f"{kind} ({', '.join(runs)}){colon}{explanation}")
    return tuple(lines)


def kinds(lines: Iterable[str]) -> str:
    """Return the kinds of these notices, for a title: "dry run, incomplete"."""
    return ", ".join(dict.fromkeys(line.partition(":")[0] for line in lines))


def exported(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notices in a record of an exported run; none for any other record."""
    if not {MODEL, "status"} <= record.keys():
        return ()
    text = record.get(NOTICE)
    if not isinstance(text, str) or not text:
        return ()
    return tuple(text.split("\n"))


def is_dry_run(manifest: RunManifest) -> bool:
    """Return whether a run, or one that it was made from, is a dry run."""
    return manifest.settings.engine == DRY_RUN or manifest.dry_run


def refuse_dry_run(manifest: RunManifest, folder: object) -> None:
    """Refuse a dry run for a command that interprets scores.

    Raises:
        UsageError: the run is a dry run.
    """
    if is_dry_run(manifest):
        raise UsageError(
            f"{folder}: a dry run: no model was asked, and the scores mean nothing; judge it with a model, or "
            "give --allow-dry-run to try the command"
        )
