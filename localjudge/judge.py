"""The judge: rows in, judgements and failures out.

rows → prompts → (token table) → engine → judgements
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

from localjudge.config import JudgeConfig, JudgeSettings
from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.engines.cluster import Cluster
from localjudge.engines.protocol import AdapterEngine, Completion, Decoding, TableEngine
from localjudge.engines.selection import engine_options, open_engine
from localjudge.errors import ModelError, SettingError, UsageError
from localjudge.models.adapter import Adapter
from localjudge.models.model import BUNDLED_NOTICE, Model
from localjudge.models.model_manifest import changes_since_verified
from localjudge.pair_outcome import PairOutcome, joined
from localjudge.prompts.task_builder import TaskBuilder
from localjudge.prompts.task_feed import Task, TaskFeed
from localjudge.records import Failure, Judgement, Outcome, Row, numbered, row_key, settings_digest
from localjudge.rows.inputs import given_rows
from localjudge.rows.pairs import Pairing
from localjudge.system.cache import cache_folder


class Judge:
    """A judge: an open-weights model on this machine, and a rubric.

        for outcome in Judge("path/to/model").score(rows):
            print(outcome.id, outcome.scores if outcome.status == "judged" else outcome.error)

    Args:
        model: a model directory, the id of a model in the local hub cache, or None for the small bundled model;
            or a `Model`; or a `JudgeConfig`, which has all settings.
        cluster: a Ray cluster, each of whose workers opens an engine; None opens the engine in this process.
        allow_changed_model: accept a model whose files have changed since it was verified.
        allow_download: download the model if it is not on this machine; otherwise nothing is downloaded.
        settings: settings of a `JudgeConfig` by name: `rubric`, `engine`, `temperature` …

    Raises:
        UsageError: the settings or the model cannot be used; the message gives the reason.
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
            if found and found.adapter:
                settings["adapter"] = str(found.adapter.path)
            config = JudgeConfig.of(model=None if name is None else str(name), **settings)
        named = str(found.path) if found else config.model
        self._engine_options = engine_options(
            config.engine, config.engine_args, cluster, named, adapts=config.adapter is not None
        )
        self.config = config
        self.rubric = config.rubric
        self.model = found or Model.find(config.model, adapter=config.adapter, allow_download=allow_download)
        self.model_changes = changes_since_verified(self.model, allow_changed_model)
        self._cluster = cluster
        self._vocabulary = self.model.vocabulary
        try:
            layout = config.answer_layout
        except ValueError as error:
            raise SettingError("answer_spelling", config.answer_spelling, str(error)) from None
        budget = self._thinking_budget(config.thinking_budget)
        prompts = self.model.prompts if budget is None else self.model.thinking_prompts
        if turns := self.rubric.turns(layout):
            prompts = self.model.prompts_after(turns, thinking=budget is not None)
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
        if budget is not None and self.model.thinking_tokens is not None:
            table = table.after_thinking(self._vocabulary, *self.model.thinking_tokens)
        text_tokens = config.max_rationale_tokens
        margin = closing_margin_for(text_tokens)
        self.decoding = Decoding(
            table, text_tokens, margin, config.temperature, config.top_p, thinking_budget=budget
        )
        if max(self.prompts.head + self.prompts.tail, default=0) >= self._vocabulary.size:
            raise ModelError(
                f"model {self.model.name}: its chat template uses tokens that the model does not have; "
                "its tokenizer and its weights do not belong together"
            )
        cuts = config.on_overflow == "truncate-candidate"
        self.task_builder = TaskBuilder(
            self.rubric, self.prompts, self.context, self.decoding.max_tokens, cuts_candidates=cuts
        )
        self._shares_engine = False
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

    def with_adapter(self, adapter: str | Path) -> Judge:
        """Return a judge of the same model with another LoRA adapter, on the same engine.

        The model is loaded once for both. Only one of them judges at a time, and closing one closes the engine
        of both.

        Args:
            adapter: the directory of the adapter.

        Raises:
            UsageError: this judge has no adapter, or its engine holds only one.
            ModelError: the adapter cannot be used.
        """
        if self.model.adapter is None or not isinstance(self.engine, AdapterEngine):
            why = "this judge has none" if self.model.adapter is None else "its engine holds only one"
            raise UsageError(f"adapter {adapter}: cannot be added to an open engine, because {why}")
        other = copy(self)
        other.model = replace(self.model, adapter=Adapter.find(adapter))
        other.config = self.config.with_(adapter=str(adapter))
        for name in ("known_settings", "settings", "_settings_digest"):
            other.__dict__.pop(name, None)
        self._shares_engine = other._shares_engine = True
        return other

    def _thinking_budget(self, asked: int | None) -> int | None:
        if asked is None:
            return 2048 if self.model.always_thinks else None
        if self.model.thinking_tokens is None:
            raise SettingError(
                "thinking_budget", asked, f"model {self.model.name} has no token that ends its thinking"
            )
        return asked

    @cached_property
    def engine(self) -> TableEngine:
        """The engine; it loads the model at first use."""
        context = None if self._longest is None else self._longest + self.decoding.max_tokens
        if self._cluster is None:
            return open_engine(self._engine_options, self.model, self.decoding, context=context, log=self._log)
        from localjudge.engines.ray.ray_engine import RayEngine

        return RayEngine(
            self.config.engine,
            self.model,
            self.decoding,
            self.config.engine_args,
            self._cluster,
            context=context,
            log=self._log,
        )

    def configure_engine(self, longest: int | None, log: Path | None) -> None:
        """Prepare the engine before its first use.

        Args:
            longest: a number of tokens that no prompt exceeds, if known; it can limit the engine's context.
            log: a file for the output of the engine's libraries, if any.
        """
        self._longest, self._log = longest, log

    @cached_property
    def known_settings(self) -> dict[str, Any]:
        """The settings that determine a judgement, without those that only the engine knows."""
        adapter = self.model.adapter
        return {
            **self.config.decisive,
            "model": self.model.digest,
            **({"adapter": adapter.digest} if adapter else {}),
            "chat_template": self.prompts.digest,
            "vocabulary": self._vocabulary.digest,
            "thinking_budget": self.decoding.thinking_budget,
        }

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings that determine a judgement, besides the row; they must be equal to continue a run."""
        engine = self.engine.info
        return self.known_settings | {"engine": engine.name, "dtype": engine.dtype}

    @cached_property
    def _settings_digest(self) -> bytes:
        return settings_digest(self.settings)

    def key(self, row: Row) -> str:
        """Return the digest of the row and of all settings that determine its judgement, 32 hex digits."""
        return row_key(self._settings_digest, row.digest)

    def describe(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the part of `run.json` that is needed to repeat the run, besides the rows.

        Args:
            settings: the settings to include; None includes all, and loads the engine.
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
                **({"adapter": _described(self.model.adapter)} if self.model.adapter else {}),
            },
            "max_tokens": self.decoding.max_tokens,
            "notice": self.notice,
        }

    @property
    def notice(self) -> str | None:
        """A warning to readers of the scores; None if there is none."""
        if self.config.engine == "dry-run":
            return "This is a dry run: no model was asked, and the scores mean nothing."
        return BUNDLED_NOTICE if self.model.is_bundled else None

    def score(self, rows: Iterable[Any]) -> Iterator[Outcome]:
        """Yield one judgement or failure for each row as soon as it is finished, not in the rows' order.

        Their `row` counts the rows from 1.

        Args:
            rows: dicts or `Row`s, or a pandas or Polars DataFrame or an Arrow table. A missing value in a table
                (NaN, NaT, null) means that the row has no reference, id or system.

        Raises:
            UsageError: the argument is a single row, or not a collection of rows.
        """
        read = numbered(given_rows(rows, self.rubric.fields))
        return (outcome for outcomes in self.outcomes(self.task_builder.tasks(read)) for outcome in outcomes)

    def compare(self, rows: Iterable[Any], pairing: Pairing | None = None) -> Iterator[PairOutcome]:
        """Yield one outcome for each pair as soon as all its orders are finished, not in the pairs' order.

        Args:
            rows: as for `score`; a dict has `candidate_a` and `candidate_b`.
            pairing: how the pairs are made of the rows; by default each row is a pair, judged in both orders.

        Raises:
            UsageError: the rubric does not compare responses, or as for `score`.
        """
        if not self.rubric.compares:
            raise UsageError(f"the rubric {self.rubric.name} judges one response; compare with pairwise")
        pairing = pairing or Pairing()
        read = numbered(pairing.rows(given_rows(rows, pairing.used(self.rubric.fields))))
        outcomes = (outcome for found in self.outcomes(self.task_builder.tasks(read)) for outcome in found)
        return joined(outcomes, self.rubric.aspects, pairing.orders)

    def outcomes(self, tasks: Iterable[Task | Failure]) -> Iterator[list[Outcome]]:
        """Yield the outcomes of the tasks, in lists of outcomes that finished together."""
        feed = TaskFeed(tasks, self.key)
        if self._shares_engine and self.model.adapter and isinstance(self.engine, AdapterEngine):
            self.engine.use(self.model.adapter)
        while not feed.exhausted:
            for completions in self.engine.complete(feed):
                yield [*feed.take_failures(), *(self._judged(feed, each) for each in completions)]
            if failures := feed.take_failures():
                yield failures

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt and its answer on this engine; None if there is no limit."""
        return self._engine_options.context(self.model)

    def _judged(self, feed: TaskFeed, completion: Completion) -> Outcome:
        task, identity = feed.take(completion.tag)
        row = task.row
        if completion.error is not None:
            return Failure(**identity, error=f"{row.source}: {completion.error}")
        decoding = self.decoding
        try:
            thoughts, tokens = decoding.table.split(completion.tokens)
            answer = self.rubric.parse(self._opening + self._vocabulary.decode(tokens))
            cut = decoding.table.was_cut(tokens, decoding.text_tokens, decoding.closing_margin)
        except (ValueError, LookupError) as error:
            # The table excludes this case; an engine that does not apply the table is reported here.
            return Failure(**identity, error=f"{row.source}: the engine's answer is not whole: {error}")
        probabilities, expected = self._distributions(completion)
        return Judgement(
            **identity,
            texts=answer.texts,
            scores=answer.scores,
            expected=expected,
            probabilities=probabilities,
            rationale_cut=cut,
            candidate_cut=task.candidate_cut,
            thoughts=self._vocabulary.decode_text(thoughts) if self.config.keep_thoughts else None,
            output_tokens=len(completion.tokens),
        )

    def _distributions(self, completion: Completion) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Return the probabilities of each aspect's values, and the mean of each ordered aspect."""
        probabilities: dict[str, list[float]] = {}
        expected: dict[str, float] = {}
        if completion.probabilities is None:
            return probabilities, expected
        measured = zip(self.rubric.answer_layout.values, completion.probabilities, strict=True)
        for (field, row), known in zip(measured, self.decoding.table.has_probabilities, strict=True):
            if known:
                row = row[: len(field.values)]
                probabilities[field.name] = [round(float(each), 6) for each in row]
                if (numbers := self.rubric.aspects[field.name].numbers) is not None:
                    expected[field.name] = round(float(row @ [*numbers.values()]), 4)
        return probabilities, expected


def _described(adapter: Adapter) -> dict[str, Any]:
    return {
        "name": adapter.name,
        "path": str(adapter.path),
        "base": adapter.base,
        "rank": adapter.rank,
        "files": adapter.files,
    }
