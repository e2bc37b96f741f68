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

DRY_RUN, IMPORTED, SERVER = "dry-run", "elsewhere", "server"
"""Names of engines: of a dry run, of scores that were imported (both are none), and of a server."""
SEVERAL_JUDGES = "several judges"


def notices(manifest: RunManifest, complete: bool, rows: int, candidates_cut: int) -> tuple[str, ...]:
    """Return the notices of a run, most serious first.

    Args:
        manifest: the manifest of the run.
        complete: whether every row has its line.
        rows: number of lines of the run; used only if the run is not complete.
        candidates_cut: number of candidates (or conversations before them) that the judge saw only in part.
    """
    found = []
    if manifest.settings.engine == DRY_RUN:
        found.append("dry run: no model was asked, and the scores mean nothing")
    elif manifest.notice and manifest.model.name != BUNDLED:
        found.append(manifest.notice)
    elif manifest.notice and manifest.rubric.is_default:
        found.append(
            "bundled model: it only compares words with the reference; use its scores to try the program, not "
            "as results"
        )
    elif manifest.notice:
        found.append(
            "bundled model: it was trained for the prompt of just-eval alone; its scores and rationales by "
            "any other prompt mean nothing"
        )
    if manifest.settings.engine == SERVER:
        found.append(
            "served model: its weights are the server's, and their digests are unknown"
            if manifest.model.files
            else f"unverified: {manifest.model.name} is known by the name that its server gives, and the "
            "server applied no token table"
        )
    if manifest.settings.chat_template == NO_TEMPLATE:
        found.append(NO_TEMPLATE_NOTICE)
    if manifest.settings.enforced in NOT_ENFORCED:
        found.append(NOT_ENFORCED[manifest.settings.enforced])
    found += NamedModels.of_run(manifest).notices
    if changed := manifest.model.changed_since_verified:
        from localjudge.models.digests import in_words

        found.append(f"changed model: its files differ from the verified files ({in_words(changed)})")
    different = [start.tokenization_warning for start in manifest.starts if start.tokenization_warning]
    found += [f"tokenizer: {words}" for words in different[-1:]]
    if manifest.settings.engine != IMPORTED:
        found += [f"prompt: {problem}" for problem in manifest.rubric.problems]
    if not complete:
        start = manifest.last_start
        planned = start.rows if manifest.shard else start.input_rows
        there = f"{rows:,} of {planned:,} rows" if planned and rows < planned else f"{rows:,} rows, not all"
        found.append(f"incomplete: {there}; means include only these rows")
    if manifest.shard:
        found.append(f"part: shard {manifest.shard} of the input")
    pairing = manifest.last_start.pairing
    if pairing is not None and pairing.orders == 1:
        found.append("one order: a preference includes the judge's preference for a place, such as the first")
    if missing := manifest.last_start.missing:
        systems = ", ".join(f"{name} to {count}" for name, count in missing.items())
        found.append(f"missing responses: {systems} of the instructions; these pairs could not be formed")
    for start in manifest.starts:
        found += [f"unread column: {line}" for line in start.late_columns]
    if manifest.rubric.prompt.guard:
        found.append("guarded: made with --guard; do not compare with scores made without it")
    if candidates_cut:
        settings, candidates = manifest.settings, f"{candidates_cut} candidate{'s' * (candidates_cut > 1)}"
        found.append(
            f"truncated: {candidates} did not fit the model's context; the judge saw only the beginning"
            if settings.on_overflow == "truncate-candidate" and settings.max_result_tokens is None
            else f"truncated: the judge did not see all of {candidates}: results of tools were cut"
        )
    return tuple(dict.fromkeys([*found, *manifest.inherited_notices]))


def together(names: Sequence[str], each: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the notices of several runs; a notice that only some of them have names these runs.

    Args:
        names: the names of the runs.
        each: the notices of each run.
    """
    runs: dict[str, list[str]] = {}
    for name, own in zip(names, each, strict=True):
        for notice in own:
            runs.setdefault(notice, []).append(name)
    found = []
    for notice, those in runs.items():
        kind, colon, rest = notice.partition(":")
        found.append(notice if len(those) == len(names) else f"{kind} ({', '.join(those)}){colon}{rest}")
    return tuple(found)


def kinds(found: Iterable[str]) -> str:
    """Return the kinds of these notices, for a title: "dry run, incomplete"."""
    return ", ".join(dict.fromkeys(notice.partition(":")[0] for notice in found))


def exported(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notices in a record of an exported run; none for any other record."""
    text = record.get(NOTICE) if {MODEL, "status"} <= record.keys() else None
    return tuple(text.split("\n")) if isinstance(text, str) and text else ()


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
