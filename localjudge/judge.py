"""The judge: rows in, judgements and failures out.

rows → prompts → (token table) → engine → judgements
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

from localjudge.config import JudgeConfig, JudgeSettings
from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.engines.cluster import Cluster
from localjudge.engines.protocol import Completion, Decoding, Engine
from localjudge.engines.selection import check_engine, open_engine
from localjudge.errors import ModelError, SettingError
from localjudge.models.model import BUNDLED_NOTICE, Model
from localjudge.models.model_manifest import changes_since_verified
from localjudge.prompts.task_builder import TaskBuilder
from localjudge.prompts.tasks import Task, TaskFeed
from localjudge.records import Failure, Judgement, Outcome, Row, row_key, settings_digest
from localjudge.rows.inputs import given_rows
from localjudge.system.cache import cache_folder


class Judge:
    """An open-weights model on this machine, judging by a rubric.

        for outcome in Judge("path/to/model").score(rows):
            print(outcome.id, outcome.scores if outcome.status == "judged" else outcome.error)

    Args:
        model: a model directory, the id of one in the local hub cache, or None for the small bundled model; or
            one that has been found already; or a `JudgeConfig`, which has all settings.
        cluster: a Ray cluster whose workers have such an engine each; None judges in this process.
        allow_changed_model: judge by a model whose files are not those that it was verified with, too.
        allow_download: fetch a model that is not on this machine. Otherwise nothing is ever fetched.
        settings: the settings of a `JudgeConfig` by their names: `rubric`, `engine`, `temperature` …

    Raises:
        UsageError: what was asked for cannot be done, with the reason.
    """

    def __init__(
        self,
        model: JudgeConfig | Model | str | Path | None = None,
        *,
        cluster: Cluster | None = None,
        allow_changed_model: bool = False,
        allow_download: bool = False,
        **settings: Unpack[JudgeSettings],
    ) -> None:
        found = model if isinstance(model, Model) else None
        if isinstance(model, JudgeConfig):
            config = model.with_(**settings) if settings else model
        else:
            name = model.name if isinstance(model, Model) else model
            config = JudgeConfig.of(model=None if name is None else str(name), **settings)
        check_engine(config.engine, config.engine_args, cluster)
        self.config = config
        self.rubric = config.rubric
        self.model = found or Model.find(config.model, allow_download=allow_download)
        self.model_changes = changes_since_verified(self.model, allow_changed_model)
        self._cluster = cluster
        self._vocabulary = self.model.vocabulary
        layout = replace(self.rubric.answer_layout, spelling=config.answer_spelling)
        budget = self._thinking_budget(config.thinking_budget)
        prompts = self.model.prompts if budget is None else self.model.thinking_prompts
        # A model that thinks first decodes the opening after its thoughts.
        self._opening = layout.opening if budget is None else ""
        try:
            self.prompts = prompts.with_opening(self._opening)
            table = token_table(
                layout,
                self._vocabulary,
                prompts.spell,
                decodes_opening=budget is not None,
                cache=cache_folder(),
            )
        except ModelError as error:
            raise ModelError(f"model {self.model.name}: {error}") from None
        limit = table.limit(config.max_rationale_tokens)
        if budget is not None and self.model.thinking_tokens is not None:
            try:
                table = table.after_thinking(self._vocabulary, *self.model.thinking_tokens, limit)
            except ValueError as error:
                raise SettingError("max_rationale_tokens", config.max_rationale_tokens, str(error)) from None
        margin = closing_margin_for(config.max_rationale_tokens)
        self.decoding = Decoding(table, limit, margin, config.temperature, config.top_p, thinking_budget=budget)
        if max(self.prompts.head + self.prompts.tail, default=0) >= self._vocabulary.size:
            raise ModelError(
                f"model {self.model.name}: its chat template uses tokens that the model does not have; "
                "its tokenizer and its weights do not belong together"
            )
        cuts = config.on_overflow == "truncate-candidate"
        self.task_builder = TaskBuilder(
            self.rubric, self.prompts, self.context, self.decoding.max_tokens, cuts_candidates=cuts
        )
        self._longest: int | None = None
        self._log: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine and free its memory; the next use opens it again."""
        if "engine" in self.__dict__:
            self.engine.close()
            del self.engine

    def _thinking_budget(self, asked: int | None) -> int | None:
        if asked is None:
            return 2048 if self.model.always_thinks else None
        if self.model.thinking_tokens is None:
            raise SettingError(
                "thinking_budget", asked, f"model {self.model.name} has no token that ends its thinking"
            )
        return asked

    @cached_property
    def engine(self) -> Engine:
        """The engine, with the model loaded at first use."""
        context = None if self._longest is None else self._longest + self.decoding.max_tokens
        arguments = (self.config.engine, self.model, self.decoding, self.config.engine_args)
        if self._cluster is None:
            return open_engine(*arguments, context=context, log=self._log)
        from localjudge.engines.ray.ray_engine import RayEngine

        return RayEngine(*arguments, self._cluster, context=context, log=self._log)

    def configure_engine(self, longest: int | None, log: Path | None) -> None:
        """Prepare the engine before its first use.

        Args:
            longest: tokens of the longest prompt, if known: the engine's context can be fitted to it.
            log: a file for what the engine's libraries print.
        """
        self._longest, self._log = longest, log

    @cached_property
    def known_settings(self) -> dict[str, Any]:
        """What decides a judgement besides the row, as far as it is known before the engine is there."""
        return {
            **self.config.decisive,
            "model": self.model.digest,
            "chat_template": self.prompts.digest,
            "vocabulary": self._vocabulary.digest,
            "thinking_budget": self.decoding.thinking_budget,
        }

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that decides a judgement besides the row: what two runs must share to be one."""
        engine = self.engine.describe()
        return self.known_settings | {"engine": engine["name"], "dtype": engine["dtype"]}

    @cached_property
    def _settings_digest(self) -> bytes:
        return settings_digest(self.settings)

    def key(self, row: Row) -> str:
        """A digest of everything that decides the judgement of this row, 32 hex digits."""
        return row_key(self._settings_digest, row.digest)

    def describe(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a stranger needs to repeat the run, besides the rows.

        Args:
            settings: those that are known; None loads the engine, to know them all.
        """
        return {
            "settings": self.settings if settings is None else settings,
            "rubric": self.rubric.model_dump(mode="json"),
            "prompt_sha256": self.rubric.template_digest,
            "model": {
                "name": self.model.name,
                "path": str(self.model.path),
                "files": self.model.files,
                "verified": self.model_changes == [],
                **({"changed_since_verified": self.model_changes} if self.model_changes else {}),
            },
            "max_tokens": self.decoding.max_tokens,
            "notice": self.notice,
        }

    @property
    def notice(self) -> str | None:
        """What a reader of its scores must know, if anything."""
        if self.config.engine == "dry-run":
            return "This is a dry run: no model was asked, and the scores mean nothing."
        return BUNDLED_NOTICE if self.model.is_bundled else None

    def score(self, rows: Iterable[Any]) -> Iterator[Outcome]:
        """A judgement or a failure for each row, each exactly once, as they finish (not in order).

        Args:
            rows: dicts or `Row`s, or a pandas or Polars DataFrame or an Arrow table. A missing value of a table
                (NaN, NaT, null) is a missing reference, id or system.

        Raises:
            UsageError: it is a single row, or nothing that holds rows.
        """
        read = given_rows(rows)
        return (outcome for outcomes in self.outcomes(self.task_builder.tasks(read)) for outcome in outcomes)

    def outcomes(self, tasks: Iterable[Task | Failure]) -> Iterator[list[Outcome]]:
        """What the tasks come to, in lists of those that finished together."""
        feed = TaskFeed(tasks, self.key)
        while not feed.exhausted:
            for completions in self.engine.complete(feed):
                yield [*feed.take_failures(), *(self._judged(feed, each) for each in completions)]
            if failures := feed.take_failures():
                yield failures

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt and its answer: the model's, or less where the engine is told so."""
        told = self.config.engine_args.get("max_model_len", "")
        lengths = [length for length in (self.model.context, int(told) if told.isdecimal() else None) if length]
        return min(lengths, default=None)

    def _judged(self, feed: TaskFeed, completion: Completion) -> Outcome:
        task, identity = feed.take(completion.tag)
        row = task.row
        if completion.error is not None:
            return Failure(**identity, error=f"{row.source}: {completion.error}")
        decoding = self.decoding
        try:
            thoughts, tokens = decoding.table.split(completion.tokens)
            answer = self.rubric.parse(self._opening + self._vocabulary.decode(tokens))
            cut = decoding.table.was_cut(tokens, decoding.limit, decoding.closing_margin)
        except (ValueError, LookupError, StopIteration) as error:
            # The table rules this out. Should an engine not keep to the table, the row says so.
            return Failure(**identity, error=f"{row.source}: the engine's answer is not whole: {error}")
        expected = probabilities = None
        if completion.probabilities is not None:
            scales = self.rubric.answer_layout.scales
            by_scale = list(zip(scales, completion.probabilities, strict=True))
            probabilities = {scale.name: [round(float(p), 6) for p in row] for scale, row in by_scale}
            expected = {scale.name: round(float(row @ scale.values), 4) for scale, row in by_scale}
        return Judgement(
            **identity,
            rationale=answer.texts["rationale"],
            scores=answer.scores,
            expected=expected,
            probabilities=probabilities,
            rationale_cut=cut,
            candidate_cut=task.candidate_cut,
            thoughts=self._vocabulary.decode_text(thoughts) if self.config.keep_thoughts else None,
            output_tokens=len(completion.tokens),
        )
