"""The judge: rows in, judgements and failures out.

rows → prompts → (token table) → engine → judgements
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
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
from localjudge.prompts.tasks import Task, TaskFeed
from localjudge.records import Failure, Judgement, Outcome, Row, numbered, row_key, settings_digest
from localjudge.rows.inputs import given_rows
from localjudge.system.cache import cache_folder

# Rows are encoded in batches of so many, of so many characters.
_AT_ONCE, _CHARACTERS_AT_ONCE = 256, 4_000_000
# A candidate that was cut may leave fewer tokens than these unused.
_TOKENS_TO_SPARE = 8


class _OverflowError(ValueError):
    """A row does not fit the model's context."""


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
        try:
            table = token_table(self.rubric, self._vocabulary, cache_folder())
        except ModelError as error:
            raise ModelError(f"model {self.model.name}: {error}") from None
        limit = table.limit(config.max_rationale_tokens)
        budget = self._thinking_budget(config.thinking_budget)
        self.prompts = self.model.prompts if budget is None else self.model.thinking_prompts
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

        Their `row` counts the rows from 1.

        Args:
            rows: dicts or `Row`s, or a pandas or Polars DataFrame or an Arrow table. A missing value of a table
                (NaN, NaT, null) is a missing reference, id or system.

        Raises:
            UsageError: it is a single row, or nothing that holds rows.
        """
        read = numbered(given_rows(rows))
        return (outcome for outcomes in self.outcomes(self.tasks(read)) for outcome in outcomes)

    def tasks(self, rows: Iterable[Row | Failure]) -> Iterator[Task | Failure]:
        """Each row with its prompt, in order; many are encoded at once."""
        waiting: list[Row | Failure] = []
        size = 0
        for row in rows:
            own = row.characters if isinstance(row, Row) else 0
            if len(waiting) == _AT_ONCE or (waiting and size + own > _CHARACTERS_AT_ONCE):
                yield from self._encoded(waiting)
                waiting, size = [], 0
            waiting.append(row)
            size += own
        yield from self._encoded(waiting)

    def _encoded(self, rows: list[Row | Failure]) -> Iterator[Task | Failure]:
        texts: dict[int, str] = {}
        for place, row in enumerate(rows):
            if isinstance(row, Row):
                with suppress(ValueError):  # task() says what is wrong with it
                    texts[place] = self.rubric.text(row)
        try:
            prompts = dict(zip(texts, self.prompts.encode_all(list(texts.values())), strict=True))
        except ValueError:
            prompts = {}
        for place, row in enumerate(rows):
            yield row if isinstance(row, Failure) else self.task(row, prompts.get(place))

    def task(self, row: Row, tokens: list[int] | None = None) -> Task:
        """What there is to do for a row; its prompt's tokens may be known already."""
        try:
            tokens, cut = self.prompt(row, tokens)
        except ValueError as error:
            return Task(row, [], error=f"{row.source}: {error}", overflows=isinstance(error, _OverflowError))
        return Task(row, tokens, cut, overflows=cut > 0)

    def outcomes(self, tasks: Iterable[Task | Failure]) -> Iterator[list[Outcome]]:
        """What the tasks come to, in lists of those that finished together."""
        feed = TaskFeed(tasks, self.key)
        while not feed.exhausted:
            for completions in self.engine.complete(feed):
                yield [*feed.take_failures(), *(self._judged(feed, each) for each in completions)]
            if failures := feed.take_failures():
                yield failures

    def prompt(self, row: Row, tokens: list[int] | None = None) -> tuple[list[int], int]:
        """The token ids that the engine gets, and how many characters of the candidate are left out.

        Args:
            row: the row.
            tokens: of the whole row, where they are known already.

        Raises:
            ValueError: the row cannot be judged by this rubric or does not fit the model's context.
        """
        tokens = tokens or self.prompts.encode(self.rubric.text(row))
        excess = self.excess(len(tokens))
        if excess <= 0:
            return tokens, 0
        if self.config.on_overflow == "fail":
            raise _OverflowError(self._does_not_fit(len(tokens)))
        shortened = self._longest_that_fits(row, excess)
        if shortened is None:
            raise _OverflowError(f"{self._does_not_fit(len(tokens))}, even with one character of its candidate")
        tokens, kept = shortened
        return tokens, len(row.candidate) - kept

    def _longest_that_fits(self, row: Row, excess: int) -> tuple[list[int], int] | None:
        """Search for the longest beginning of the candidate, of one character or more, that fits the context.

        The search ends at the longest, or at one that leaves fewer than `_TOKENS_TO_SPARE` tokens unused. Each
        second step halves what is left to search: n characters take at most 2 + 2 log2(n) encodings.

        Args:
            row: the row.
            excess: the tokens by which the whole row exceeds the context.

        Returns:
            the prompt's token ids and the number of characters that are kept; None if no beginning fits.
        """
        fits, too_long = 0, len(row.candidate)
        found: list[int] | None = None
        unused, length, halve = 0, 1, False
        while length < too_long:
            try:
                tokens = self.prompts.encode(self.rubric.text(replace(row, candidate=row.candidate[:length])))
                over = self.excess(len(tokens))
            except ValueError:  # the tokenizer cannot read the text if it ends here
                over = excess
            if over > 0:
                too_long, excess = length, over
            else:
                found, fits, unused = tokens, length, -over
                if unused < _TOKENS_TO_SPARE:
                    break
            if found is None:
                return None
            # By turns: where the tokens would run out if each character took as many, and the middle.
            share = 0.5 if halve else unused / (unused + excess)
            length, halve = max(fits + 1, fits + int((too_long - fits) * share)), not halve
        return None if found is None else (found, fits)

    def excess(self, prompt_tokens: int) -> int:
        """By how many tokens a prompt of this length and its answer exceed the model's context."""
        return prompt_tokens + self.decoding.max_tokens - self.context if self.context is not None else 0

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt and its answer: the model's, or less where the engine is told so."""
        told = self.config.engine_args.get("max_model_len", "")
        lengths = [length for length in (self.model.context, int(told) if told.isdecimal() else None) if length]
        return min(lengths, default=None)

    def _does_not_fit(self, prompt_tokens: int) -> str:
        return (
            f"a prompt of {prompt_tokens} tokens and an answer of up to {self.decoding.max_tokens} do not fit "
            f"the context of {self.context}"
        )

    def _judged(self, feed: TaskFeed, completion: Completion) -> Outcome:
        task, identity = feed.take(completion.tag)
        row = task.row
        if completion.error is not None:
            return Failure(**identity, error=f"{row.source}: {completion.error}")
        decoding = self.decoding
        try:
            thoughts, tokens = decoding.table.split(completion.tokens)
            answer = self.rubric.parse(self._vocabulary.decode(tokens))
            cut = decoding.table.was_cut(tokens, decoding.limit, decoding.closing_margin)
        except (ValueError, LookupError, StopIteration) as error:
            # The table rules this out. Should an engine not keep to the table, the row says so.
            return Failure(**identity, error=f"{row.source}: the engine's answer is not whole: {error}")
        expected = probabilities = None
        if completion.probabilities is not None:
            values = self.rubric.scale.values
            by_aspect = dict(zip(self.rubric.aspects, completion.probabilities, strict=True))
            probabilities = {aspect: [round(float(p), 6) for p in row] for aspect, row in by_aspect.items()}
            expected = {aspect: round(float(row @ values), 4) for aspect, row in by_aspect.items()}
        return Judgement(
            **identity,
            rationale=answer.rationale,
            scores=answer.scores,
            expected=expected,
            probabilities=probabilities,
            rationale_cut=cut,
            candidate_cut=task.candidate_cut,
            thoughts=self._vocabulary.decode_text(thoughts) if self.config.keep_thoughts else None,
            output_tokens=len(completion.tokens),
        )
