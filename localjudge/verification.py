"""Check whether a model directory is complete, safe to load and able to judge, for `models verify`.

No code from the directory is run and no weights are loaded. Only their headers are read, and every byte for the
digests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Literal

from localjudge.engines.selection import choose_engine
from localjudge.errors import LocalJudgeError, ModelError
from localjudge.given_template import NO_TEMPLATE
from localjudge.models.configuration import read_document, remote_code
from localjudge.models.digests import MANIFEST, in_words, model_files, paths_in, read_digests
from localjudge.models.model import Model
from localjudge.models.model_class import ModelClass, no_class
from localjudge.models.model_manifest import ModelManifest
from localjudge.models.refused_types import INSTEAD, why_no_judge
from localjudge.models.tensor_check import check_tensors
from localjudge.models.tokenizer import TOKENIZER_FILE
from localjudge.models.weights import PICKLED, WHOLE, is_lfs_pointer, read_index
from localjudge.records import Row
from localjudge.rows.formats import EXAMPLES
from localjudge.rows.inputs import read_rows
from localjudge.system.requirements import install_command
from localjudge.system.steps import Report, no_progress

if TYPE_CHECKING:
    from localjudge.judge import Judge

State = Literal["ok", "note", "wrong"]

_FETCH = "download the whole model again: hf download REPOSITORY --local-dir DIR"
_SIMPLER = "use a model with a simpler chat template, or correct the template"
_TEMPLATE_WAYS_ON = (
    f"give --chat-template FILE, or --chat-template {NO_TEMPLATE} to judge with plain text, as a base model"
)
_SPELLS = f"{_FETCH}, or use one with a byte-level or SentencePiece tokenizer"
_TOKENIZERS = (TOKENIZER_FILE, "tokenizer.model", "vocab.json", "tekken.json")
_CONFIGURATIONS = ("tokenizer_config.json", "generation_config.json")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: what was checked.
        state: `ok`; `note`, a remark that does not prevent a run; or `wrong`.
        found: what was found.
        fix: what to do about it; empty if nothing needs to be done.
    """

    name: str
    state: State
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def note(name: str, found: str, fix: str = "") -> Check:
    return Check(name, "note", found, fix)


def wrong(name: str, found: str, fix: str) -> Check:
    return Check(name, "wrong", found, fix)


def is_sound(checks: Sequence[Check]) -> bool:
    """Return whether nothing is wrong."""
    return all(check.state != "wrong" for check in checks)


def verify(
    model: Model, *, write: bool = True, renew: bool = False, report: Report = no_progress
) -> list[Check]:
    """Run all checks of a model, including its digests, which are computed from every byte.

    Args:
        model: the model; `Model.locate` finds it even if its directory is incomplete.
        write: write a manifest if nothing is wrong and there is none. The bundled model gets none, because its
            directory belongs to the installation.
        renew: replace the existing manifest.
        report: receives the bytes that were read for the digests, and those of all files.
    """
    engine, _ = choose_engine("auto")
    checks = check_model(model, engine=engine)
    may_write = write and is_sound(checks) and not model.is_bundled
    if is_sound(checks) or (model.path / MANIFEST).exists():
        renew_command = f"localjudge models verify {quote(model.name)} --renew"
        compare = partial(
            _manifest_checks,
            model,
            may_write=may_write,
            renew=renew,
            renew_command=renew_command,
            report=report,
        )
        manifest_checks = ModelChecks(model, engine)
        manifest_checks.add("manifest", compare, f"if the files are right: {renew_command}")
        checks.extend(manifest_checks.results)
    return checks


def _manifest_checks(
    model: Model, *, may_write: bool, renew: bool, renew_command: str, report: Report
) -> list[Check]:
    """Compare the digests of a model's files with its manifest, or write a manifest of them."""
    digests = read_digests(model.path, ignore_cache=True, report=report)
    manifest = ModelManifest.from_digests(digests)
    size = f"{len(manifest.files)} files, digest {manifest.digest[:16]}"
    earlier = None if renew else ModelManifest.read(model.path)
    if earlier is not None:
        day = earlier.created[:10]
        differences = earlier.differences(digests)
        if not differences:
            return [ok("manifest", f"matches the manifest of {day}: {size}")]
        fix = f"copy the model again, or accept the change: {renew_command}"
        return [wrong("manifest", f"{difference} since {day}", fix) for difference in differences]
    if not may_write:
        return [note("manifest", f"not written: {size}")]
    manifest.write(model.path)
    return [ok("manifest", f"written: {size}")]


def check_model(model: Model, *, engine: str) -> list[Check]:
    """Run the checks that need only headers, configuration and tokenizer.

    Args:
        model: the model.
        engine: the engine that is to load it, `transformers` or `vllm`.
    """
    checks = ModelChecks(model, engine)
    checks.run()
    return checks.results


@dataclass(slots=True)
class ModelChecks:
    """The checks of one model, for an engine that is to load it."""

    model: Model
    engine: str
    results: list[Check] = field(default_factory=list)
    judge: Judge | None = None

    def run(self) -> None:
        """Run the checks in order; each needs those before it."""
        has_files = self.add("files", self.files)
        has_configuration = self.add("config", self.config)
        has_weights = has_files and self.add("weights", self.weights)
        if not has_configuration or not self._can_encode():
            return
        if has_weights and not self.add(
            "tensors", self.tensors, "copy the config.json that belongs to these weights"
        ):
            return
        if self.add("table", self.table, "use a model whose tokenizer can spell JSON"):
            self.add("context", self.context, "use a model with a longer context")

    def _can_encode(self) -> bool:
        """Run the checks of the tokenizer and the template, up to the first that is wrong."""
        return (
            self.add("tokenizer", self.tokenizer)
            and self.add("template", self.template, _SIMPLER)
            and self.add("encoder", self.encoder)
            and self.add("vocabulary", self.vocabulary, _SPELLS)
        )

    def add(self, name: str, check: Callable[[], Check | list[Check]], fix: str = _FETCH) -> bool:
        """Run one check and add its results. Return whether nothing is wrong.

        Args:
            name: the name of the check.
            check: runs the check and returns its results.
            fix: what to do if it raises.
        """
        try:
            checked = check()
        except ModuleNotFoundError as error:
            checked = wrong(
                name,
                f"cannot be checked: {error.name} is missing",
                install_command("cpu"),
            )
        except LocalJudgeError as error:
            checked = wrong(name, str(error).removeprefix(f"model {self.model.name}").lstrip(": "), fix)
        except Exception as error:  # files from strangers can make the libraries raise anything
            checked = wrong(name, f"{type(error).__name__}: {error}", fix)
        results = checked if isinstance(checked, list) else [checked]
        self.results.extend(results)
        return is_sound(results)

    def files(self) -> Check:
        """Check that every file exists itself, and is not a dangling link or a Git LFS pointer."""
        folder = self.model.path
        dangling = [path.relative_to(folder).as_posix() for path in paths_in(folder) if not path.exists()]
        if dangling:
            return wrong("files", f"{in_words(dangling)}: links to files that are not there", _FETCH)
        files = model_files(folder)
        pointers = [name for name, file in files.items() if is_lfs_pointer(file)]
        if pointers:
            fix = f"git -C {quote(str(folder))} lfs pull, or {_FETCH}"
            return wrong("files", f"{in_words(pointers)}: a Git LFS pointer instead of the file", fix)
        size = sum(file.stat().st_size for file in files.values())
        return ok("files", f"{len(files)} files, {size:,} bytes")

    def config(self) -> Check:
        """Check that the configuration can be read, needs no other code, and is of a type that can judge."""
        folder = self.model.path
        names = ["config.json"]
        names += [name for name in _CONFIGURATIONS if (folder / name).is_file()]
        documents = [read_document(folder / name, f"model {self.model.name}") for name in names]
        remote_names: set[str] = set()
        for document in documents:
            remote_names.update(remote_code(document))
        remote = sorted(remote_names)
        model_type = documents[0].get("model_type")
        try:
            configuration_class = type(self.model.config).__name__
        except ModelError:
            if not remote:
                raise
            unsupported = f"this version does not support model_type {model_type}"
            return wrong(
                "config",
                f"refused: it needs remote code ({in_words(remote)}), and no *.py of a model is ever run",
                f"use a model that transformers supports; {unsupported}",
            )
        reason = why_no_judge(self.model.configuration)
        if reason is not None:
            return wrong("config", reason, INSTEAD)
        if remote:
            never_run = f"the remote code that it names is never run: {in_words(remote)}"
            return note("config", f"{configuration_class}; {never_run}")
        return ok("config", f"{configuration_class}, model_type {model_type}")

    def weights(self) -> Check:
        """Check that the weights are safetensors, which hold only numbers, and are as their headers say."""
        folder = self.model.path
        pickled = [name for name in model_files(folder) if name.lower().endswith(PICKLED)]
        safetensors = {file.name for file in folder.glob("*.safetensors") if file.is_file()}
        if not safetensors and pickled:
            return wrong(
                "weights",
                f"refused: only pickled weights, which can run code when loaded: {in_words(pickled)}",
                "use a revision of the model that has *.safetensors",
            )
        if not safetensors:
            return wrong("weights", "there are no weights", _FETCH)
        index = read_index(folder)
        loaded = set(index.values()) if index else {WHOLE}
        not_loaded = sorted(safetensors - loaded)
        unexpected = [name for name in not_loaded if not name.startswith("consolidated")]
        if unexpected:
            return wrong(
                "weights",
                f"{in_words(unexpected)}: not part of the model, but an engine might load it",
                "remove it from the directory",
            )
        tensors = self.model.tensors.values()
        numbers = sum(math.prod(tensor.shape) for tensor in tensors)
        types = ", ".join(sorted({tensor.dtype for tensor in tensors}))
        files = len(safetensors) - len(not_loaded)
        size = f"{files} files, {len(tensors)} tensors, {numbers:,} numbers, {types}"
        if not_loaded or pickled:
            # Some publishers include a second copy of the weights in a format of their own.
            return note("weights", f"{size}; not read: {in_words(not_loaded + pickled)}")
        return ok("weights", size)

    def tokenizer(self) -> Check:
        folder = self.model.path
        if not any((folder / name).is_file() for name in _TOKENIZERS):
            return wrong("tokenizer", f"no tokenizer: none of {', '.join(_TOKENIZERS)}", _FETCH)
        tokenizer = self.model.tokenizer
        has_file = (folder / TOKENIZER_FILE).is_file()
        source = TOKENIZER_FILE if has_file else type(tokenizer).__name__
        return ok("tokenizer", f"{source}, {len(tokenizer):,} tokens")

    def template(self) -> Check:
        """Check that the chat template renders and puts the content in exactly one place."""
        if not self.model.tokenizer.chat_template:
            if self.model.given_template is None:
                return wrong("template", "no chat template; this may be a base model", _TEMPLATE_WAYS_ON)
            return note(
                "template", f"--chat-template {NO_TEMPLATE}: prompts are plain text, as for a base model"
            )
        prompts = self.model.prompts
        frame = f"{len(prompts.head)} tokens before the text, {len(prompts.tail)} after it"
        thought = prompts.open_thought
        if thought is not None and not thought.ends:
            return note("template", f"{frame}; it opens a thought ({thought.opens}) whose end is not known")
        if self.model.thought_marks is None:
            return ok("template", frame)
        if thought is None:
            return ok("template", f"{frame}; it can think")
        return ok("template", f"{frame}; it always thinks first")

    def encoder(self) -> list[Check]:
        """Say whether other programs may encode prompts differently, by the responses of the examples."""
        texts = [row.candidate for row in read_rows([EXAMPLES]) if isinstance(row, Row)]
        warning = self.model.tokenization_warning(texts)
        if warning is None:
            return []
        return [note("tokenizer", warning)]

    def vocabulary(self) -> Check:
        vocabulary = self.model.vocabulary
        if not vocabulary.ends:
            raise ModelError("the vocabulary has none of the tokens that end a turn")
        pieces = f"{len(vocabulary.pieces):,} tokens of text"
        return ok("vocabulary", f"{pieces}, {len(vocabulary.ends)} that end a turn")

    def tensors(self) -> Check:
        """Check that the tensors match the architecture that the configuration names.

        vLLM has classes of its own, so it may load a model for which transformers has none.
        """
        if self.engine != "vllm" and ModelClass.of(self.model.configuration) is None:
            return wrong("tensors", no_class(self.model.configuration), INSTEAD)
        tensors = check_tensors(self.model)
        if not tensors.complete:
            return note("tensors", tensors.words)
        return ok("tensors", tensors.words)

    def table(self) -> Check:
        """Check that the tokenizer can spell an answer."""
        from localjudge.judge import Judge

        self.judge = Judge(self.model, chat_template=self.model.given_template, allow_changed_model=True)
        table = self.judge.decoding.table
        shortest = f"the shortest answer takes {table.smallest_limit} tokens"
        return ok("table", f"{len(table.distance)} states, {shortest}")

    def context(self) -> Check:
        """Check that the longest answer and a row fit the context."""
        assert self.judge is not None  # the check of the table makes it
        judge = self.judge
        shortest_row = Row.from_response(instruction="-", reference="-", candidate="-", id="-", source="-")
        prompt_tokens = len(judge.prompts.encode(judge.rubric.text(shortest_row)))
        answer_tokens = judge.decoding.max_tokens
        if judge.context is None:
            return ok("context", f"no limit known: an answer takes up to {answer_tokens:,} tokens")
        row_tokens = -judge.task_builder.excess(prompt_tokens)
        use = f"{prompt_tokens:,} of the prompt alone, {answer_tokens:,} of the longest answer"
        if row_tokens <= 0:
            raise ModelError(f"{judge.context:,} tokens: {use}; none are left for a row")
        return ok("context", f"{judge.context:,} tokens: {use}, {row_tokens:,} left for a row")
