"""Check whether a model directory is complete, safe to load and able to judge, for `models verify`.

No code from the directory is run and no weights are loaded. Only their headers are read, and every byte for the
digests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    sound, renewing = is_sound(checks), f"localjudge models verify {quote(model.name)} --renew"

    def manifest() -> list[Check]:
        found = read_digests(model.path, ignore_cache=True, report=report)
        now = ModelManifest.from_digests(found)
        about = f"{len(now.files)} files, digest {now.digest[:16]}"
        if not renew and (was := ModelManifest.read(model.path)):
            fix = f"copy the model again, or accept the change: {renewing}"
            day = was.created[:10]
            changes = [wrong("manifest", f"{each} since {day}", fix) for each in was.differences(found)]
            return changes or [ok("manifest", f"matches the manifest of {day}: {about}")]
        if not (write and sound and not model.is_bundled):
            return [note("manifest", f"not written: {about}")]
        now.write(model.path)
        return [ok("manifest", f"written: {about}")]

    if sound or (model.path / MANIFEST).exists():
        ModelChecks(model, engine, checks).at("manifest", manifest, f"if the files are right: {renewing}")
    return checks


def check_model(model: Model, *, engine: str) -> list[Check]:
    """Run the checks that need only headers, configuration and tokenizer.

    Args:
        model: the model.
        engine: the engine that is to load it, `transformers` or `vllm`.
    """
    look = ModelChecks(model, engine)
    weights = look.at("files", look.files)
    configured = look.at("config", look.config)
    weights = weights and look.at("weights", look.weights)
    fits = (
        configured
        and look.at("tokenizer", look.tokenizer)
        and look.at("template", look.template, _SIMPLER)
        and look.at("encoder", look.encoder)
        and look.at("vocabulary", look.vocabulary, _SPELLS)
    )
    if weights:
        fits = fits and look.at("tensors", look.tensors, "copy the config.json that belongs to these weights")
    fits = fits and look.at("table", look.table, "use a model whose tokenizer can spell JSON")
    if fits:
        look.at("context", look.context, "use a model with a longer context")
    return look.checks  # each check needs those before it


@dataclass(slots=True)
class ModelChecks:
    """The checks of one model, for an engine that is to load it."""

    model: Model
    engine: str
    checks: list[Check] = field(default_factory=list)
    judge: Judge | None = None

    def at(self, name: str, look: Callable[[], Check | list[Check]], fix: str = _FETCH) -> bool:
        """Run one check. Return whether nothing is wrong.

        Args:
            name: name of the check.
            look: runs the check and returns its results.
            fix: what to do if it raises.
        """
        try:
            found = look()
        except ModuleNotFoundError as error:
            found = wrong(
                name,
                f"cannot be checked: {error.name} is missing",
                install_command("cpu"),
            )
        except LocalJudgeError as error:
            found = wrong(name, str(error).removeprefix(f"model {self.model.name}").lstrip(": "), fix)
        except Exception as error:  # files from strangers can make the libraries raise anything
            found = wrong(name, f"{type(error).__name__}: {error}", fix)
        found = found if isinstance(found, list) else [found]
        self.checks.extend(found)
        return is_sound(found)

    def files(self) -> Check:
        """Check that every file exists itself, and is not a dangling link or a Git LFS pointer."""
        folder = self.model.path
        lost = [path.relative_to(folder).as_posix() for path in paths_in(folder) if not path.exists()]
        if lost:
            return wrong("files", f"{in_words(lost)}: links to files that are not there", _FETCH)
        files = model_files(folder)
        if pointers := [name for name, file in files.items() if is_lfs_pointer(file)]:
            fix = f"git -C {quote(str(folder))} lfs pull, or {_FETCH}"
            return wrong("files", f"{in_words(pointers)}: a Git LFS pointer instead of the file", fix)
        size = sum(file.stat().st_size for file in files.values())
        return ok("files", f"{len(files)} files, {size:,} bytes")

    def config(self) -> Check:
        """Check that the configuration can be read, needs no other code, and is of a type that can judge."""
        folder = self.model.path
        names = ["config.json", *(name for name in _CONFIGURATIONS if (folder / name).is_file())]
        documents = [read_document(folder / name, f"model {self.model.name}") for name in names]
        remote = sorted({each for document in documents for each in remote_code(document)})
        kind = documents[0].get("model_type")
        try:
            about = type(self.model.config).__name__
        except ModelError:
            if not remote:
                raise
            return wrong(
                "config",
                f"refused: it needs remote code ({in_words(remote)}), and no *.py of a model is ever run",
                f"use a model that transformers supports; this version does not support model_type {kind}",
            )
        reason = why_no_judge(self.model.configuration)
        if reason is not None:
            return wrong("config", reason, INSTEAD)
        if remote:
            return note("config", f"{about}; the remote code that it names is never run: {in_words(remote)}")
        return ok("config", f"{about}, model_type {kind}")

    def weights(self) -> Check:
        """Check that the weights are safetensors, which hold only numbers, and are as their headers say."""
        folder = self.model.path
        pickled = [name for name in model_files(folder) if name.lower().endswith(PICKLED)]
        there = {file.name for file in folder.glob("*.safetensors") if file.is_file()}
        if not there and pickled:
            return wrong(
                "weights",
                f"refused: only pickled weights, which can run code when loaded: {in_words(pickled)}",
                "use a revision of the model that has *.safetensors",
            )
        if not there:
            return wrong("weights", "there are no weights", _FETCH)
        index = read_index(folder)
        left = sorted(there - (set(index.values()) if index else {WHOLE}))
        if unread := [name for name in left if not name.startswith("consolidated")]:
            return wrong(
                "weights",
                f"{in_words(unread)}: not part of the model, but an engine might load it",
                "remove it from the directory",
            )
        tensors = self.model.tensors.values()
        numbers = sum(math.prod(tensor.shape) for tensor in tensors)
        kinds = ", ".join(sorted({tensor.dtype for tensor in tensors}))
        about = f"{len(there) - len(left)} files, {len(tensors)} tensors, {numbers:,} numbers, {kinds}"
        if left or pickled:  # some publishers include a second copy of the weights in a format of their own
            return note("weights", f"{about}; not read: {in_words([*left, *pickled])}")
        return ok("weights", about)

    def tokenizer(self) -> Check:
        folder = self.model.path
        if not any((folder / name).is_file() for name in _TOKENIZERS):
            return wrong("tokenizer", f"no tokenizer: none of {', '.join(_TOKENIZERS)}", _FETCH)
        tokenizer = self.model.tokenizer
        source = TOKENIZER_FILE if (folder / TOKENIZER_FILE).is_file() else type(tokenizer).__name__
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
        around = f"{len(prompts.head)} tokens before the text, {len(prompts.tail)} after it"
        opened = prompts.open_thought
        if opened and not opened.ends:
            return note("template", f"{around}; it opens a thought ({opened.opens}) whose end is not known")
        if self.model.thought_marks is None:
            return ok("template", around)
        return ok("template", f"{around}; {'it always thinks first' if opened else 'it can think'}")

    def encoder(self) -> list[Check]:
        """Say whether other programs may encode prompts differently, by the responses of the examples."""
        texts = [row.candidate for row in read_rows([EXAMPLES]) if isinstance(row, Row)]
        different = self.model.tokenization_warning(texts)
        return [note("tokenizer", different)] if different else []

    def vocabulary(self) -> Check:
        pieces, ends = self.model.vocabulary.pieces, self.model.vocabulary.ends
        if not ends:
            raise ModelError("the vocabulary has none of the tokens that end a turn")
        return ok("vocabulary", f"{len(pieces):,} tokens of text, {len(ends)} that end a turn")

    def tensors(self) -> Check:
        """Check that the tensors match the architecture that the configuration names.

        vLLM has classes of its own, so it may load a model for which transformers has none.
        """
        if self.engine != "vllm" and ModelClass.of(self.model.configuration) is None:
            return wrong("tensors", no_class(self.model.configuration), INSTEAD)
        found = check_tensors(self.model)
        return (ok if found.complete else note)("tensors", found.words)

    def table(self) -> Check:
        """Check that the tokenizer can spell an answer."""
        from localjudge.judge import Judge

        self.judge = Judge(self.model, chat_template=self.model.given_template, allow_changed_model=True)
        table = self.judge.decoding.table
        states, shortest = len(table.distance), table.smallest_limit
        return ok("table", f"{states} states, the shortest answer takes {shortest} tokens")

    def context(self) -> Check:
        """Check that the longest answer and a row fit the context."""
        assert self.judge is not None  # the check of the table makes it
        judge = self.judge
        least = Row.from_response(instruction="-", reference="-", candidate="-", id="-", source="-")
        prompt, answer = len(judge.prompts.encode(judge.rubric.text(least))), judge.decoding.max_tokens
        if judge.context is None:
            return ok("context", f"no limit known: an answer takes up to {answer:,} tokens")
        left = -judge.task_builder.excess(prompt)
        takes = f"{judge.context:,} tokens: {prompt:,} of the prompt alone, {answer:,} of the longest answer"
        if left <= 0:
            raise ModelError(f"{takes}; none are left for a row")
        return ok("context", f"{takes}, {left:,} left for a row")
