"""A model on this machine: where it is, what files it is made of, and how it reads and ends text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from localjudge.constraint.vocabulary import Vocabulary, read_vocabulary
from localjudge.errors import ModelError, UsageError
from localjudge.models.configuration import read_document, remote_kernels
from localjudge.models.digests import DECISIVE, Digests, decisive_digest, read_digests
from localjudge.models.weights import PICKLED
from localjudge.prompts.encoder import PromptEncoder, render
from localjudge.system.offline import go_offline, online
from localjudge.system.requirements import require

BUNDLED = "bundled"
# The tokens between which models think.
_THOUGHTS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"))
# Of a model on the hub: what is read of it. Pickled weights and programs are not even fetched.
_FETCHED = [*(f"*{ending}" for ending in DECISIVE), "*.md", "LICENSE*"]
BUNDLED_NOTICE = (
    "These scores come from the small bundled model. They mean no more than this: which words of the reference "
    "it finds kept, changed or missing in the response, and how that is written. It errs, and knows nothing.\n"
    "Name a real judge with --model, a model directory or an id in the local cache, such as "
    "--model Qwen/Qwen3-8B"
)


@dataclass(frozen=True)
class Model:
    """A causal language model in a local directory. `Model.find` finds one."""

    name: str
    path: Path

    @classmethod
    def find(cls, name: str | Path | None = None, *, allow_download: bool = False) -> Model:
        """The model in a directory, in the local hub cache by its id, or the bundled one.

        Args:
            name: a directory or an id; None is the bundled one.
            allow_download: fetch a model that is not here from the hub. Otherwise nothing is ever fetched.

        Raises:
            ModelError: it is not there, or it is nothing that can be loaded safely.
        """
        model = cls.locate(name, allow_download=allow_download)
        return model if model.is_bundled else model._checked()

    @classmethod
    def locate(cls, name: str | Path | None = None, *, allow_download: bool = False) -> Model:
        """The same, whatever the directory holds. From here on, the libraries below fetch nothing.

        Raises:
            ModelError: it is not there.
        """
        go_offline()
        if name is None or str(name) == BUNDLED:
            return cls(BUNDLED, _bundled_folder())
        path = model_path(name)
        if not path.is_dir():
            path = _cached_folder(str(name), allow_download)
        return cls(str(name), path.resolve())

    def _checked(self) -> Model:
        if not (self.path / "config.json").is_file():
            raise ModelError(f"model {self.name}: {self.path} holds no config.json")
        if not list(self.path.glob("*.safetensors")):
            pickled = any(file.name.lower().endswith(PICKLED) for file in self.path.iterdir())
            what = "only pickled weights, which can run code when loaded" if pickled else "no weights"
            raise ModelError(f"model {self.name}: {self.path} holds {what}; safetensors files are needed")
        if (self.path / "adapter_config.json").exists():
            raise ModelError(
                f"model {self.name}: {self.path} holds an adapter (adapter_config.json), which one engine "
                "loads and another ignores; merge it into the weights, or take it away"
            )
        return self

    @property
    def is_bundled(self) -> bool:
        return self.name == BUNDLED

    @cached_property
    def configuration(self) -> Any:
        """The whole configuration, as transformers reads it.

        Raises:
            ModelError: it cannot be read, or it asks for programs from the hub.
        """
        from transformers import AutoConfig

        if kernels := remote_kernels(read_document(self.path / "config.json", self.name)):
            raise ModelError(
                f"model {self.name}: config.json names kernels of the hub ({', '.join(kernels)}), which are "
                "programs, and nothing is fetched; take them out of config.json"
            )
        if named := read_document(self.path / "config.json", self.name).get("transformers_weights"):
            raise ModelError(
                f"model {self.name}: config.json names weights of its own (transformers_weights: "
                f"{str(named)[:80]}), which not every engine reads; name the file model.safetensors and take "
                "this out"
            )
        try:
            return AutoConfig.from_pretrained(self.path, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # a file of a stranger's: the library raises anything
            raise ModelError(f"model {self.name}: {_first_line(error)}") from None

    @cached_property
    def config(self) -> Any:
        """The configuration of the language model (of its text part, where it has several)."""
        return self.configuration.get_text_config()

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            # Where mistral-common is installed, a tekken.json would be read by it: its tokenizer has no twin.
            return AutoTokenizer.from_pretrained(
                self.path, local_files_only=True, trust_remote_code=False, mistral_format=False
            )
        except Exception as error:  # the same
            raise ModelError(
                f"model {self.name}: its tokenizer cannot be loaded: {_first_line(error)}{self._missing_reader}"
            ) from None

    @property
    def _missing_reader(self) -> str:
        """What to install, where a tokenizer has only the SentencePiece form and its libraries are absent."""
        only_sentencepiece = (self.path / "tokenizer.model").is_file() and not (
            self.path / "tokenizer.json"
        ).is_file()
        try:
            require("; it has only a tokenizer.model", "sentencepiece")
        except UsageError as missing:
            return str(missing) if only_sentencepiece else ""
        return ""

    @cached_property
    def prompts(self) -> PromptEncoder:
        """What puts the chat template around a text. A model that can do without thinking is asked to."""
        return self._prompts(thinking=False)

    @cached_property
    def thinking_prompts(self) -> PromptEncoder:
        """The same, but a model that can think is asked to."""
        return self._prompts(thinking=True)

    def _prompts(self, *, thinking: bool) -> PromptEncoder:
        controls = self._controls
        try:
            return PromptEncoder(self.tokenizer, thinking=thinking, controls=controls)
        except ModelError as error:
            raise ModelError(f"model {self.name}: {error}") from None

    @property
    def _controls(self) -> frozenset[int]:
        """Tokens that end a turn or enclose a thought, whether or not the tokenizer declares them."""
        ids = (self.tokenizer.backend_tokenizer.token_to_id(text) for pair in _THOUGHTS for text in pair)
        return self.end_tokens.union(token for token in ids if token is not None)

    @cached_property
    def thinking_tokens(self) -> tuple[int | None, int] | None:
        """The tokens that open and end a thought; None where the model has no token that ends one."""
        ids = {
            added.content: token
            for token, added in self.tokenizer.backend_tokenizer.get_added_tokens_decoder().items()
        }
        for opens, ends in _THOUGHTS:
            if ends in ids:
                return ids.get(opens), ids[ends]
        return None

    @cached_property
    def always_thinks(self) -> bool:
        """Whether the chat template leaves a thought open before the answer, even if asked not to think."""
        if self.thinking_tokens is None or not self.tokenizer.chat_template:
            return False
        opens, ends = self.thinking_tokens
        marks = [token for token in self.prompts.tail if token in (opens, ends)]
        return bool(marks) and marks[-1] == opens

    @cached_property
    def vocabulary(self) -> Vocabulary:
        ends = self.end_tokens
        try:
            return read_vocabulary(self.tokenizer, self.config.vocab_size, ends)
        except ModelError as error:
            raise ModelError(f"model {self.name}: {error}") from None

    @property
    def context(self) -> int | None:
        """The most tokens of a prompt and its answer together; None where the model names no bound."""
        length = getattr(self.config, "max_position_embeddings", None)
        return int(length) if length else None

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a turn: of the configurations, the tokenizer, and the chat template.

        Raises:
            ModelError: nothing names one, or a file names something that is no token id.
        """
        ends = self._end_ids("config.json", getattr(self.config, "eos_token_id", None))
        ends |= self._end_ids("tokenizer_config.json", self.tokenizer.eos_token_id)
        generation = self.path / "generation_config.json"
        if generation.is_file():
            ends |= self._end_ids(generation.name, read_document(generation, self.name).get("eos_token_id"))
        if self.tokenizer.chat_template:
            ends |= self._end_of_turn()
        if not ends:
            raise ModelError(
                f"model {self.name}: neither its files nor its tokenizer name an end-of-text token"
            )
        return frozenset(ends)

    def _end_ids(self, file: str, named: Any) -> set[int]:
        """The token ids that a file names as `eos_token_id`: one, a list, or none."""
        ids = named if isinstance(named, list) else [] if named is None else [named]
        if any(type(token) is not int for token in ids):
            raise ModelError(
                f"model {self.name}: {file}: eos_token_id is {str(named)[:80]!r}; give a token id, a whole "
                "number, or a list of them"
            )
        return set(ids)

    def _end_of_turn(self) -> set[int]:
        """The added token that the chat template puts after an answer, if it does."""
        stand_in = "stand-in-for-the-answer"
        turns = [{"role": "user", "content": "-"}, {"role": "assistant", "content": stand_in}]
        try:
            text = render(self.tokenizer, turns, add_generation_prompt=False)
        except ModelError as error:
            raise ModelError(f"model {self.name}: {error}") from None
        if stand_in not in text:
            return set()
        rest = text.rpartition(stand_in)[2].lstrip()
        special = {
            token: added
            for token, added in self.tokenizer.backend_tokenizer.get_added_tokens_decoder().items()
            if added.special
        }
        return {token for token, added in special.items() if rest.startswith(added.content)}

    @cached_property
    def digests(self) -> Digests:
        """SHA-256 of each file, and which of them the cache remembered."""
        return read_digests(self.path)

    @cached_property
    def files(self) -> dict[str, str]:
        """SHA-256 of each file in the directory and its subfolders, in hex."""
        return self.digests.sha256

    @property
    def digest(self) -> str:
        """SHA-256 over what decides the model's answers: weights, configuration, tokenizer, chat templates."""
        return decisive_digest(self.files)


def shipped_folder(name: str) -> Path | None:
    """`models/NAME` of the checkout, or its copy inside an installed package; None where neither is there."""
    package = Path(__file__).parents[1]
    for folder in (package / "_models" / name, package.parent / "models" / name):
        if folder.is_dir():
            return folder
    return None


def model_path(name: str | Path) -> Path:
    """Return the path that a model's name may be; a `~` stays where it stands for no known home."""
    return Path(os.path.expanduser(name))


def _bundled_folder() -> Path:
    folder = shipped_folder(BUNDLED)
    if folder is None or not (folder / "config.json").is_file():
        raise ModelError("the bundled model is missing from this installation; name one with --model")
    return folder


def _cached_folder(name: str, allow_download: bool) -> Path:
    if model_path(name).is_file():
        raise ModelError(f"model {name}: a file; name the directory that it is in")
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise ModelError(f"model {name}: no such directory")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        # Fetched without its pickles or its originals, a model is whole enough.
        if incomplete := getattr(error, "snapshot_path", None):
            return Path(incomplete)
        looked = f"model {name}: no such directory, and not in the local cache {constants.HF_HUB_CACHE}"
    if not allow_download:
        raise ModelError(
            f"{looked}; fetch it where there is a network: hf download {name}, or score with --allow-download"
        )
    try:
        with online():
            return Path(snapshot_download(name, allow_patterns=_FETCHED))
    except Exception as error:  # the hub's, the network's and the disk's errors have no root in common
        raise ModelError(
            f"{looked}; it cannot be fetched: {_first_line(error)}; a machine without a network gets a copy of "
            "its directory, or a pack: localjudge pack --model"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
