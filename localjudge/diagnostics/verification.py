"""Whether a model directory is whole, safe to load and able to judge: what `models verify` looks at.

Nothing that the directory holds is run, and no weight is loaded: of the weights the headers are read, and, for
the digests, every byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from localjudge.constraint.compiler import token_table
from localjudge.diagnostics.checks import Check, is_sound, note, ok, wrong
from localjudge.errors import LocalJudgeError, ModelError
from localjudge.judge import Judge
from localjudge.models.architecture import check_tensors
from localjudge.models.configuration import read_document
from localjudge.models.digests import MANIFEST, model_files, paths_in, read_digests
from localjudge.models.model import Model
from localjudge.models.model_manifest import ModelManifest, in_words
from localjudge.models.weights import (
    INDEX,
    PICKLED,
    WHOLE,
    Tensor,
    WeightIndex,
    embedding_rows,
    is_lfs_pointer,
    misplaced,
    read_header,
    read_index,
)
from localjudge.records import Row
from localjudge.rubrics.rubric import Rubric
from localjudge.system.requirements import install_command

_FETCH = "fetch the model again, whole: hf download REPOSITORY --local-dir DIR"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_CONFIGURATIONS = ("tokenizer_config.json", "generation_config.json")


def verify(
    model: Model,
    *,
    write: bool = True,
    renew: bool = False,
    read: Callable[[int], None] = lambda count: None,
) -> list[Check]:
    """Everything there is to check of a model, its digests included, which are taken afresh.

    Args:
        model: the model; `Model.locate` finds it whatever its directory holds.
        write: leave a manifest in the directory, where nothing is wrong and there is none. The bundled model's
            directory belongs to the installation and gets none.
        renew: put a new manifest in the place of the one that is there.
        read: told how many bytes have been read for the digests, as they are.
    """
    checks = examine(model)
    sound = is_sound(checks)
    written = (model.path / MANIFEST).exists()
    if sound or written:
        look = _Look(model, checks)
        look.at(
            "manifest",
            lambda: list(_manifest(model, write and sound and not model.is_bundled, renew, read)),
            f"if the files are right: localjudge models verify {quote(model.name)} --renew",
        )
    return checks


def examine(model: Model) -> list[Check]:
    """The same without the digests: only headers, configuration and tokenizer are read."""
    look = _Look(model)
    weights = look.at("files", look.files, _FETCH)
    configured = look.at("config", look.config, _FETCH)
    weights = look.at("weights", look.weights, _FETCH) and weights
    weights = weights and look.at("shards", look.shards, _FETCH) and look.at("headers", look.headers, _FETCH)
    steps = (
        ("tokenizer", look.tokenizer, _FETCH),
        ("template", look.template, "use a model whose chat template is a plain one, or mend the template"),
        ("vocabulary", look.vocabulary, f"{_FETCH}, or use one with a byte-level or SentencePiece tokenizer"),
        *(
            [
                ("embedding", look.embedding, _FETCH),
                ("tensors", look.tensors_fit, "put in the config.json that belongs to these weights"),
            ]
            if weights
            else []
        ),
        ("table", look.table, "use a model whose tokenizer can spell JSON"),
        ("context", look.context, "use a model with a longer context"),
    )
    if configured:
        all(look.at(*step) for step in steps)  # each needs those before it
    return look.checks


@dataclass(slots=True)
class _Look:
    """The checks of one model, each of which may build on what those before it have read."""

    model: Model
    checks: list[Check] = field(default_factory=list)
    index: WeightIndex | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def at(self, name: str, look: Callable[[], Check | list[Check]], mend: str) -> bool:
        """Look at one thing. Whether nothing is wrong with it.

        Args:
            name: of the check.
            look: what it found.
            mend: what to do where it raises.
        """
        try:
            found = look()
        except ModuleNotFoundError as error:
            found = wrong(name, f"cannot be checked: {error.name} is missing", install_command("cpu"))
        except LocalJudgeError as error:
            found = wrong(name, str(error).removeprefix(f"model {self.model.name}: "), mend)
        except Exception as error:  # a stranger's files make the libraries that read them raise anything
            found = wrong(name, f"{type(error).__name__}: {error}", mend)
        found = found if isinstance(found, list) else [found]
        self.checks.extend(found)
        return is_sound(found)

    def files(self) -> Check:
        """Every file is there itself, and not a note of where it is."""
        folder = self.model.path
        lost = [path.relative_to(folder).as_posix() for path in paths_in(folder) if not path.exists()]
        if lost:
            return wrong("files", f"{in_words(lost)}: links to files that are not there", _FETCH)
        files = model_files(folder)
        if pointers := [name for name, file in files.items() if is_lfs_pointer(file)]:
            mend = f"git -C {quote(str(folder))} lfs pull, or {_FETCH}"
            return wrong("files", f"{in_words(pointers)}: a Git LFS pointer, and not the file itself", mend)
        size = sum(file.stat().st_size for file in files.values())
        return ok("files", f"{len(files)} files, {size:,} bytes")

    def config(self) -> Check:
        """The configuration can be read, and needs no code but the installed libraries' own."""
        folder = self.model.path
        documents = [read_document(folder / "config.json", self.model.name)]
        documents += [
            read_document(folder / name, self.model.name)
            for name in _CONFIGURATIONS
            if (folder / name).is_file()
        ]
        remote = sorted({each for document in documents for each in _remote_code(document)})
        kind = documents[0].get("model_type")
        try:
            about = type(self.model.config).__name__
        except ModelError:
            if not remote:
                raise
            return wrong(
                "config",
                f"refused: it needs remote code ({in_words(remote)}), and no *.py of a model is ever run",
                f"use a model that transformers knows itself; model_type {kind} is none that this version does",
            )
        if remote:
            return note("config", f"{about}; the remote code that it names is never run: {in_words(remote)}")
        if code := sorted(file.name for file in folder.glob("*.py")):
            return note("config", f"{about}; there is code beside it, which is never run: {in_words(code)}")
        return ok("config", f"{about}, model_type {kind}")

    def weights(self) -> Check:
        """Weights are there in the one format that holds nothing but numbers."""
        names = model_files(self.model.path)
        pickled = [name for name in names if name.lower().endswith(PICKLED)]
        if count := sum(name.endswith(".safetensors") and "/" not in name for name in names):
            if pickled:
                return note("weights", f"safetensors; pickles beside them are not read: {in_words(pickled)}")
            return ok("weights", f"safetensors, {count} file(s)")
        if pickled:
            return wrong(
                "weights",
                f"refused: only pickled weights, which can run code when loaded: {in_words(pickled)}",
                "use a revision of the model that has *.safetensors",
            )
        return wrong("weights", "there are none", _FETCH)

    def shards(self) -> Check:
        """The files of weights are those that belong together."""
        self.index = read_index(self.model.path)
        there = {file.name for file in self.model.path.glob("*.safetensors") if file.is_file()}
        named = set(self.index.shards.values()) if self.index else {WHOLE}
        if missing := sorted(named - there):
            by = INDEX if self.index else f"there is no {INDEX}, so it"
            return wrong("shards", f"{by} asks for {in_words(missing)}: not there", _FETCH)
        left = sorted(there - named)
        if unread := [name for name in left if not name.startswith("consolidated")]:
            return wrong(
                "shards",
                f"{in_words(unread)}: no part of the model, but an engine might load it",
                "take it out of the directory",
            )
        if left:  # some publish a second copy of the weights, in the form of their own programs
            return note("shards", f"{len(named)} there; not read: {in_words(left)}")
        return ok("shards", f"{len(named)} of {len(named)} there")

    def headers(self) -> Check:
        """Each file is as long as its header says, and holds the tensors that the index puts there."""
        faults: list[str] = []
        held: dict[str, dict[str, Tensor]] = {}
        for shard in sorted(set(self.index.shards.values())) if self.index else [WHOLE]:
            try:
                held[shard] = read_header(self.model.path / shard)
            except ModelError as error:
                faults.append(f"{shard} is {error}" if str(error).startswith("cut") else f"{shard}: {error}")
        if self.index and not faults:
            faults += misplaced(self.index.shards, held)
        if faults:
            return wrong("headers", in_words(faults), _FETCH)
        for tensors in held.values():
            self.tensors |= tensors
        size = sum(tensor.size for tensor in self.tensors.values())
        said = self.index.total_size if self.index else None
        if said is not None and said != size:
            return note("headers", f"{INDEX} says {said:,} bytes in all, the tensors take {size:,}")
        numbers = sum(math.prod(tensor.shape) for tensor in self.tensors.values())
        kinds = ", ".join(sorted({tensor.dtype for tensor in self.tensors.values()}))
        return ok("headers", f"{len(self.tensors)} tensors, {numbers:,} numbers, {kinds}, {size:,} bytes")

    def tokenizer(self) -> Check:
        folder = self.model.path
        if not any((folder / name).is_file() for name in _TOKENIZERS):
            return wrong("tokenizer", f"there is none: no {', '.join(_TOKENIZERS)}", _FETCH)
        tokenizer = self.model.tokenizer
        return ok("tokenizer", f"{type(tokenizer).__name__}, {len(tokenizer):,} tokens")

    def template(self) -> Check:
        """The chat template renders, and the content stands in one place that can be told from it."""
        if not self.model.tokenizer.chat_template:
            return note("template", "there is none, so a prompt is plain text: is it a base model?")
        prompts = self.model.prompts
        thinks = ""
        if self.model.thinking_tokens is not None:
            _ = self.model.thinking_prompts
            thinks = "; it always thinks first" if self.model.always_thinks else "; it can think"
        return ok(
            "template", f"{len(prompts.head)} tokens before the text, {len(prompts.tail)} after it{thinks}"
        )

    def vocabulary(self) -> Check:
        pieces, ends = self.model.vocabulary.pieces, self.model.vocabulary.ends
        if not ends:
            raise ModelError("the tokens that end a turn are none that the model has")
        return ok("vocabulary", f"{len(pieces):,} tokens of text, {len(ends)} that end a turn")

    def embedding(self) -> Check:
        """Every token that a text can become has its row."""
        rows = embedding_rows(self.tensors)
        if not rows:
            return note("embedding", "none of its usual names is among the tensors; not checked")
        name, count = max(rows.items(), key=lambda item: item[1])
        largest = max(self.model.tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values())
        together = "the weights and the rest of the directory do not belong together"
        if largest >= count:
            return wrong(
                "embedding",
                f"{name} has {count:,} rows, the tokenizer's ids go to {largest:,}; {together}",
                _FETCH,
            )
        if count != self.model.config.vocab_size:
            said = f"config.json says vocab_size {self.model.config.vocab_size:,}"
            return wrong("embedding", f"{name} has {count:,} rows, {said}; {together}", _FETCH)
        return ok("embedding", f"{count:,} rows, ids of text go to {largest:,}")

    def tensors_fit(self) -> Check:
        """The tensors are those of the architecture that the configuration names."""
        found = check_tensors(self.model)
        return (ok if found.complete else note)("tensors", found.words)

    def table(self) -> Check:
        table = token_table(Rubric.load(), self.model.vocabulary)
        apart = "" if table.has_probabilities else "; no probabilities of scores, a score takes several tokens"
        return ok(
            "table",
            f"{len(table.distance)} states, the shortest answer takes {table.smallest_limit} tokens{apart}",
        )

    def context(self) -> Check:
        """The longest answer fits, and a row beside it."""
        judge = Judge(self.model, allow_changed_model=True)
        least = Row(instruction="-", reference="-", candidate="-", id="-", source="-")
        prompt, answer = len(judge.prompts.encode(judge.rubric.text(least))), judge.decoding.max_tokens
        if judge.context is None:
            return ok("context", f"without bound: an answer takes up to {answer:,} tokens")
        left = -judge.excess(prompt)
        takes = f"{judge.context:,} tokens: {prompt:,} of the prompt's own, {answer:,} of the longest answer"
        if left <= 0:
            raise ModelError(f"{takes}; nothing is left for a row")
        return ok("context", f"{takes}, {left:,} left for a row")


def _remote_code(configuration: Mapping[str, Any]) -> Iterator[str]:
    """The files of code that a configuration names for the library to run."""
    named = configuration.get("auto_map")
    for value in named.values() if isinstance(named, dict) else []:
        for reference in value if isinstance(value, list) else [value]:
            if reference:
                yield f"{str(reference).rpartition('--')[2].partition('.')[0]}.py"


def _manifest(model: Model, write: bool, renew: bool, read: Callable[[int], None]) -> Iterator[Check]:
    """The files are those of the manifest, or of the one that is written now."""
    found = read_digests(model.path, afresh=True, read=read).sha256
    now = ModelManifest.of(model.path, found)
    about = f"{len(now.files)} files, digest {now.digest[:16]}"
    was = None if renew else ModelManifest.read(model.path)
    if was is not None:
        for difference in was.differences(found):
            mend = (
                f"copy the model again; if that is meant: localjudge models verify {quote(model.name)} --renew"
            )
            yield wrong("manifest", f"{difference} since {was.created[:10]}", mend)
        if not was.differences(found):
            yield ok("manifest", f"matches that of {was.created[:10]}: {about}")
    elif write:
        now.write(model.path)
        yield ok("manifest", f"written: {about}")
    else:
        yield note("manifest", f"not written: {about}")
