"""The judge: rows in, judgements and failures out.

rows → prompts → (token table) → engine → answer reader → judgements
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from localjudge.config import JudgeConfig
from localjudge.constraint.value_paths import VALUE_RULE
from localjudge.engines.answer_reader import ReadAnswer, TableReader
from localjudge.engines.engine_options import Cluster, ServerOptions, TableServerOptions
from localjudge.engines.prompt_outcome import prompt_outcome
from localjudge.engines.protocol import NOT_ENFORCED, TableEngine, TextEngine
from localjudge.engines.selection import engine_options, open_engine
from localjudge.engines.server.text_reader import TextReader
from localjudge.errors import SettingError
from localjudge.given_template import NO_TEMPLATE_NOTICE
from localjudge.models.catalogue import BUNDLED_NOTICE, BUNDLED_RUBRIC_NOTICE, profile_of
from localjudge.models.model import Model
from localjudge.models.model_manifest import changes_since_verified
from localjudge.modes import prompt_rows
from localjudge.modes.checklist import ChecklistOutcome
from localjudge.modes.pair import PairOutcome
from localjudge.prompts.task import Task, TaskFeed
from localjudge.prompts.task_builder import TaskBuilder
from localjudge.records import Failure, Outcome, Row, numbered
from localjudge.records.keys import row_key, settings_digest
from localjudge.rows.columns import CONVERSATIONS
from localjudge.rows.pairs import Pairing
from localjudge.rows.program_rows import rows_of_program
from localjudge.system.quantities import counted
from localjudge.system.steps import Report, no_progress

ROWS_COMPARED = 64
"""The most rows whose prompts are also encoded as other programs may do it, to say whether they differ."""
Order = Literal["rows", "finished"]
"""The order of outcomes: that of their rows, or the one in which they are finished."""
_MOST_EARLY = 4096
"""The most outcomes that wait for the outcome of an earlier row."""


class Judge:
    """A judge: an open-weights model on this machine, and a rubric.

        for row, outcome in zip(rows, Judge("path/to/model").score(rows), strict=True):
            print(row["candidate"], outcome.scores if outcome.status == "judged" else outcome.error)

    Args:
        model: a model directory, the id of a model in the local hub cache, or None for the small bundled model;
            or a `Model`; or a `JudgeConfig`, which has all settings.
        cluster: a Ray cluster, each of whose workers opens an engine; None opens the engine in this process.
        allow_changed_model: accept a model whose files have changed since it was verified.
        allow_download: download the model if it is not on this machine; otherwise nothing is downloaded.
        report: receives the bytes that were read of the model's files, if they are compared with a manifest.
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
        report: Report = no_progress,
        **settings: Any,
    ) -> None:
        config = _config(model, settings)
        self._engine_options = engine_options(config.engine, config.engine_args, cluster)
        if isinstance(self._engine_options, ServerOptions) and config.chat_template is not None:
            advice = "the server applies its own chat template; leave it out, or give it to the server"
            raise SettingError("chat_template", config.chat_template.name, advice)
        self.config = config
        self.rubric = config.rubric
        self._cluster = cluster
        self._longest: int | None = None
        self._log: Path | None = None
        self.model_changes: list[str] | None = None
        self._reader: TableReader | TextReader
        self._answers = 0
        self._thoughts = 0
        if isinstance(self._engine_options, ServerOptions):
            from localjudge.engines.server.served_model import ServedModel

            self.model: Model = ServedModel.ask(self._engine_options, config.model)
            self._prepare_texts()
        else:
            if isinstance(model, Model):
                self.model = model
            elif self._has_served_weights:
                # Of a model on a server, only the tokenizer and the configuration must be here.
                self.model = Model.locate(config.model, allow_download=allow_download)
            else:
                self.model = Model.find(config.model, allow_download=allow_download)
            self.model_changes = changes_since_verified(
                self.model, allow_changed=allow_changed_model, report=report
            )
            if config.template_args:
                self.model = replace(self.model, template_args=config.template_args)
            if config.chat_template != self.model.given_template:
                self.model = replace(self.model, given_template=config.chat_template)
            self.model.require_template()
            self._prepare_table()

    def _prepare_table(self) -> None:
        """Prepare prompts and answers that are token ids, with the model's own tokenizer."""
        self.model.check_type()
        reader, self.prompts = TableReader.from_config(self.config, self.model)
        self._reader = reader
        self.decoding = reader.decoding
        limit = self.config.max_result_tokens
        if limit is not None and CONVERSATIONS.isdisjoint(self.rubric.fields):
            advice = f"the rubric {self.rubric.name} shows no conversation; judge by another, such as agent"
            raise SettingError("max_result_tokens", limit, advice)
        self.task_builder = TaskBuilder(
            self.rubric,
            self.prompts,
            self.context,
            self.decoding.max_tokens,
            self.config.on_overflow,
            limit,
        )
        self._prompt_settings: dict[str, Any] = {
            "prompt_frame": self.prompts.digest,
            "vocabulary": reader.vocabulary.digest,
            "thinking_budget": self.decoding.thinking_budget,
        }

    def _prepare_texts(self) -> None:
        """Prepare prompts and answers that are text, for a server that alone has the model's tokenizer."""
        self._reader = TextReader(self.config)
        self.task_builder = TaskBuilder(self.rubric, None, None, self._reader.max_tokens)
        self._prompt_settings = {"thinking_budget": self.config.thinking_budget}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine and free its memory; the next use opens it again."""
        if "engine" in self.__dict__:
            self.engine.close()
            del self.engine

    @cached_property
    def engine(self) -> TableEngine | TextEngine:
        """The engine; it loads the model at first use."""
        if isinstance(self._engine_options, ServerOptions):
            from localjudge.engines.server.served_model import ServedModel
            from localjudge.engines.server.text_server import TextServer

            assert isinstance(self.model, ServedModel)
            assert isinstance(self._reader, TextReader)
            return TextServer(self._engine_options, self.model, self._reader)
        context = self._needed_context
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

    @property
    def _needed_context(self) -> int | None:
        """The most tokens of any prompt and its answer; None if the prompts are not known."""
        if self._longest is None:
            return None
        needed = self._longest + self.decoding.max_tokens
        if self.context is None:
            return needed
        return min(needed, self.context)

    def configure_engine(self, longest: int | None, log: Path | None) -> None:
        """Prepare the engine before its first use.

        Args:
            longest: an upper bound of the tokens of any prompt, if known; it can limit the engine's context.
            log: a file for the output of the engine's libraries, if any.
        """
        self._longest = longest
        self._log = log

    @cached_property
    def known_settings(self) -> dict[str, Any]:
        """The settings that determine a judgement, without those that only the engine knows."""
        digest = self.model.digest
        return {
            **self.config.run_identity,
            "value_rule": VALUE_RULE,
            "model": f"on a server {digest}" if self._has_served_weights else digest,
            **self._prompt_settings,
        }

    @property
    def _has_served_weights(self) -> bool:
        return isinstance(self._engine_options, TableServerOptions)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All settings that determine a judgement, besides the row; they must be equal to continue a run."""
        return self.known_settings | self.engine.info.settings

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
        description = {
            "settings": self.settings if settings is None else settings,
            "rubric": self.rubric.model_dump(mode="json"),
            "prompt_sha256": self.rubric.template_digest,
            "model": self._recorded_model,
            "max_tokens": self.task_builder.answer_tokens,
            "notice": self.notice,
        }
        template = self.config.chat_template
        if template is not None and template.source is not None:
            # So that the run can be repeated without the file.
            description["given_template"] = template.source
        return description

    @property
    def _recorded_model(self) -> dict[str, Any]:
        """The model as `run.json` has it."""
        recorded: dict[str, Any] = {
            "name": self.model.name,
            "path": None if self.model.is_served else str(self.model.path),
            "files": self.model.files,
            "verified": self.model_changes == [],
        }
        if self.model_changes:
            recorded["changed_since_verified"] = self.model_changes
        return recorded

    @property
    def notice(self) -> str | None:
        """A warning to readers of the scores; None if there is none."""
        if self.config.engine == "dry-run":
            return "This is a dry run: no model was asked, and the scores mean nothing."
        if self.model.is_bundled:
            return BUNDLED_NOTICE if self.rubric.is_default else BUNDLED_RUBRIC_NOTICE
        if self.model.is_served:
            return None
        profile = profile_of(self.model.config)
        if profile is None:
            return None
        return profile.small_notice

    @property
    def template_notice(self) -> str | None:
        """A line about a model that judges without a chat template; None for any other."""
        template = self.config.chat_template
        if template is None or template.source is not None:
            return None
        return NO_TEMPLATE_NOTICE

    @property
    def form_notice(self) -> str | None:
        """A line about a server that enforces less than the form of an answer; None for any other judge.

        It is known when the engine is open, and None before.
        """
        if not isinstance(self._engine_options, ServerOptions) or "engine" not in self.__dict__:
            return None
        return NOT_ENFORCED.get(self.engine.info.enforced)

    @property
    def notices(self) -> list[str]:
        """What a reader of the scores must know of the judge, as far as it is known before the rows."""
        notices = (self.notice, self.template_notice, self.form_notice)
        return [notice for notice in notices if notice is not None]

    def tokenization_warning(self, rows: Iterable[Row | Failure]) -> str | None:
        """Return in words that other programs may encode prompts of the first rows differently; None if not.

        As `Model.tokenization_warning`; at most `ROWS_COMPARED` rows are compared.
        """
        judged = (row for row in rows if isinstance(row, Row) and not self.rubric.refusal(row))
        texts = [self.rubric.text(row) for row in islice(judged, ROWS_COMPARED)]
        return self.model.tokenization_warning(texts)

    def score(self, rows: Iterable[Any], order: Order = "rows") -> Iterator[Outcome]:
        """Yield one judgement or failure for each row, in the rows' order.

        Their `row` counts the prompts from 1: a row with criteria has one for each.

        Args:
            rows: dicts or `Row`s, or a pandas or Polars DataFrame or an Arrow table. A missing value in a table
                (NaN, NaT, null) means that the row has no reference, id or system.
            order: "rows", in which at most 4,096 outcomes wait for that of an earlier row; or "finished", for a
                stream of rows whose reader must not wait: an outcome's `row` then says which row it is of.

        Raises:
            UsageError: the argument is a single row, or not a collection of rows; or the order is unknown.
        """
        return self._outcomes(prompt_rows(partial(rows_of_program, rows), self.rubric.fields), order)

    def compare(
        self, rows: Iterable[Any], pairing: Pairing | None = None, order: Order = "rows"
    ) -> Iterator[PairOutcome]:
        """Yield one outcome for each pair, in the pairs' order.

        Args:
            rows: as for `score`; a dict has `candidate_a` and `candidate_b`.
            pairing: how the pairs are made of the rows; by default each row is a pair, judged in both orders.
            order: as for `score`; "finished" yields a pair as soon as all its orders are finished.

        Raises:
            UsageError: the rubric does not compare responses, or as for `score`.
        """
        self.rubric.mode.require_pairs(f"the rubric {self.rubric.name}", "; compare with pairwise")
        if pairing is None:
            pairing = Pairing()
        prompts = prompt_rows(partial(rows_of_program, rows), self.rubric.fields, pairing)
        join = self.rubric.mode.join(self.rubric.aspects, pairing.orders)
        return join.all(self._outcomes(prompts, order))

    def check(self, rows: Iterable[Any], order: Order = "rows") -> Iterator[ChecklistOutcome]:
        """Yield one outcome for each row whose criteria are checked, in the rows' order.

        Args:
            rows: as for `score`; a dict has `criteria`.
            order: as for `score`; "finished" yields a row as soon as all its criteria are judged.

        Raises:
            UsageError: the rubric does not check criteria of a row, or as for `score`.
        """
        self.rubric.mode.require_criteria(f"the rubric {self.rubric.name}", "; check with checklist")
        return self.rubric.mode.join(self.rubric.aspects, 1).all(self.score(rows, order))

    @property
    def thinking_notice(self) -> str | None:
        """A line about thoughts that the user has not asked for; None if there is nothing to say.

        The chat template opens one, or the model was trained to write one first and is not let.
        """
        if isinstance(self._reader, TextReader) or self.config.thinking_budget is not None:
            return None
        thought = self.prompts.open_thought
        if thought is None:
            return self._untold_thoughts
        opens = f"the model's chat template opens a thought ({thought.opens.strip()})"
        if not thought.ends:
            return f"{opens} whose end is not known: the answers are written inside it"
        return (
            f"{opens}: the model thinks for up to {self.decoding.thinking_budget} tokens before each answer; "
            "`thinking_budget` sets the limit, and 0 closes the thought at once"
        )

    @property
    def _untold_thoughts(self) -> str | None:
        """A line about a model that was trained to think first, and answers at once; None for any other."""
        marks = self.model.untold_thoughts
        if marks is None:
            return None
        return (
            f"the model's chat template names thoughts ({marks.opens.strip()}) without a switch, so the model "
            "was trained to think first; it answers at once, and `thinking_budget` lets it think"
        )

    @property
    def no_thoughts_notice(self) -> str | None:
        """A line for a judge that was let think, and whose answers so far are without a thought; else None."""
        budget = self._prompt_settings["thinking_budget"]
        if not budget or not self._answers or self._thoughts or self.config.engine == "dry-run":
            return None
        reason = "the model does not think by this prompt"
        if isinstance(self._reader, TextReader):
            reason = f"the server switched thoughts off, or {reason}"
        answers = counted(self._answers, "answer")
        return f"no thoughts: `thinking_budget` is {budget}, and none of {answers} has a thought; {reason}"

    def _read(self, completion: Any) -> ReadAnswer:
        answer = self._reader.read(completion)
        self._answers += 1
        if answer.thoughts.strip():
            self._thoughts += 1
        return answer

    def _outcomes(self, rows: Iterable[Row | Failure], order: Order) -> Iterator[Outcome]:
        tasks = self.task_builder.tasks(numbered(rows))
        if order == "finished":
            return _as_finished(self.judge_tasks(tasks))
        if order != "rows":
            raise SettingError("order", order, "give rows or finished")
        early: dict[int, Outcome] = {}
        return _in_order(early, self.judge_tasks(_not_too_early(tasks, early)))

    def judge_tasks(self, tasks: Iterable[Task | None]) -> Iterator[list[tuple[Task, Outcome]]]:
        """Yield the tasks with their outcomes, in lists of those that finished together.

        Args:
            tasks: the tasks; None if no further one is ready yet.
        """
        feed = TaskFeed(tasks, self.key)
        while not feed.exhausted:
            for completions in self.engine.complete(feed):
                outcomes = self._refused(feed)
                for completion in completions:
                    task, key = feed.take(completion.tag)
                    outcome = prompt_outcome(task, key, completion, self._read, self.config)
                    outcomes.append((task, outcome))
                yield outcomes
            refused = self._refused(feed)
            if refused:
                yield refused

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt and its answer on this engine; None if there is no limit."""
        return self._engine_options.context(self.model)

    def _refused(self, feed: TaskFeed) -> list[tuple[Task, Outcome]]:
        """Take the tasks from the feed that no prompt can be made of, and return them with their failures."""
        refused: list[tuple[Task, Outcome]] = []
        for task in feed.take_refused():
            if isinstance(task.row, Failure):
                failure = task.row
            else:
                failure = Failure(**task.row.identity, key=self.key(task.row), error=str(task.error))
            refused.append((task, failure))
        return refused


def _config(model: JudgeConfig | Model | str | Path | None, settings: Mapping[str, Any]) -> JudgeConfig:
    """Return the configuration of a judge, of what `Judge` accepts as a model and of its other settings."""
    if isinstance(model, JudgeConfig):
        return model.replace(**settings) if settings else model
    if isinstance(model, Model):
        return JudgeConfig.from_settings(model=model.name, **settings)
    if model is None:
        return JudgeConfig.from_settings(model=None, **settings)
    return JudgeConfig.from_settings(model=str(model), **settings)


def _as_finished(finished: Iterable[Iterable[tuple[Task, Outcome]]]) -> Iterator[Outcome]:
    """Yield the outcomes as they are finished."""
    for outcomes in finished:
        for _, outcome in outcomes:
            yield outcome


def _not_too_early(tasks: Iterable[Task], early: Mapping[int, Outcome]) -> Iterator[Task | None]:
    """Yield the tasks; None, which makes the engine finish what it has, while too many outcomes wait."""
    for task in tasks:
        while len(early) >= _MOST_EARLY:
            yield None
        yield task


def _in_order(
    early: dict[int, Outcome], finished: Iterable[Iterable[tuple[Task, Outcome]]]
) -> Iterator[Outcome]:
    """Yield outcomes by the numbers of their rows, from 1; if an error ends them, those that are left first.

    Args:
        early: holds the outcomes that wait for the one of an earlier row.
        finished: the outcomes of each number, in any order.
    """
    number = 1
    try:
        for judged in finished:
            early.update((outcome.row or 0, outcome) for _, outcome in judged)
            while number in early:
                yield early.pop(number)
                number += 1
    except Exception:
        for row in sorted(early):
            yield early[row]
        raise
