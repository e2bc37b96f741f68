"""A model on this machine: its directory, its files, its tokenizer and its end tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from localjudge.constraint.vocabulary import Vocabulary, read_vocabulary
from localjudge.errors import ModelError, UsageError, in_one_line
from localjudge.given_template import NO_TEMPLATE, GivenTemplate
from localjudge.models.catalogue import BUNDLED, bundled_folder, model_path
from localjudge.models.configuration import read_document, remote_kernels
from localjudge.models.digests import decisive_digest, read_digests
from localjudge.models.hub_cache import cached_folder, refused_gguf
from localjudge.models.refused_types import INSTEAD, why_no_judge
from localjudge.models.tokenizer import TOKENIZER_FILE, load_tokenizer, tokenization_warning
from localjudge.models.weights import PICKLED, Tensor, read_tensors
from localjudge.prompts.encoder import PromptEncoder
from localjudge.prompts.rendered_turns import render
from localjudge.prompts.thought_formats import ThoughtFormat
from localjudge.prompts.thought_marks import KNOWN_MARKS, marks_of, names_thoughts, open_thought
from localjudge.system.machine import go_offline
from localjudge.system.requirements import require
from localjudge.system.steps import Report, no_progress

_ANSWER = "stand-in-for-the-answer"
"""The text that stands for an answer in a chat template."""


@dataclass(frozen=True, slots=True)
class ThoughtTokens:
    """The tokens around a thought.

    Attributes:
        opens: the tokens that open it; none if the prompt does.
        ends: the added token that ends it, or the text that the model writes as text tokens.
        then: the tokens from there to the answer.
    """

    opens: list[int]
    ends: int | bytes
    then: list[int]


@dataclass(frozen=True)
class Model:
    """A causal language model in a local directory. `Model.find` finds one.

    Attributes:
        name: the requested name.
        path: the directory.
        template_args: variables of its chat template that the judge sets.
        given_template: the chat template that replaces its own; None for its own.
    """

    name: str
    path: Path
    template_args: Mapping[str, Any] = field(default_factory=dict, hash=False)
    given_template: GivenTemplate | None = None

    @classmethod
    def find(cls, name: str | Path | None = None, *, allow_download: bool = False) -> Model:
        """Return the model of a directory, a model in the local hub cache, or the bundled model.

        Args:
            name: a directory or an id; None for the bundled model.
            allow_download: download a model that is not on this machine. Otherwise nothing is downloaded.

        Raises:
            ModelError: there is no such model, or it cannot be loaded safely.
        """
        model = cls.locate(name, allow_download=allow_download)
        if not model.is_bundled:
            model._check_directory()
        return model

    @classmethod
    def locate(cls, name: str | Path | None = None, *, allow_download: bool = False) -> Model:
        """Return the model without checking its directory. From now on, the libraries download nothing.

        Raises:
            ModelError: there is no such model.
        """
        go_offline()
        if name is None or str(name) == BUNDLED:
            return cls(BUNDLED, bundled_folder())
        path = model_path(name)
        folder = path if path.is_dir() else cached_folder(str(name), allow_download=allow_download)
        return cls(str(name), folder.resolve())

    def _check_directory(self) -> None:
        """Check that the directory has a whole model that can be loaded safely.

        Raises:
            ModelError: it has not.
        """
        if (self.path / "adapter_config.json").exists():
            raise ModelError(
                f"model {self.name}: {self.path} has a LoRA adapter (adapter_config.json), which some engines "
                "load and others ignore; merge it into its model (PEFT: merge_and_unload), and give the result"
            )
        has_weights = any(self.path.glob("*.safetensors"))
        gguf_files = sorted(self.path.glob("*.gguf"))
        if gguf_files and not has_weights:
            raise refused_gguf(f"{self.path}: {gguf_files[0].name}")
        if not (self.path / "config.json").is_file():
            raise ModelError(f"model {self.name}: {self.path} has no config.json; give a model directory")
        if not has_weights:
            has_pickles = any(file.name.lower().endswith(PICKLED) for file in self.path.iterdir())
            content = "only pickled weights, which can run code when loaded" if has_pickles else "no weights"
            raise ModelError(
                f"model {self.name}: {self.path} has {content}; give a model with safetensors files"
            )

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the model in the errors of the block, and the template that replaces its own."""
        try:
            yield
        except ModelError as error:
            subject = f"model {self.name}"
            if self.given_template is not None:
                subject += f" with `chat_template` {self.given_template.name}"
            raise ModelError(f"{subject}: {error}") from None

    @property
    def is_served(self) -> bool:
        """Whether only a server has its files."""
        return False

    @property
    def is_bundled(self) -> bool:
        return self.name == BUNDLED

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """The tensors in the headers of its weights, by name.

        Raises:
            ModelError: a file is missing, damaged or not part of the model.
        """
        with self._named():
            return read_tensors(self.path)

    @cached_property
    def configuration(self) -> Any:
        """Return the whole configuration, as transformers reads it.

        Raises:
            ModelError: it cannot be read, or it requires programs from the hub.
        """
        from transformers import AutoConfig

        document = read_document(self.path / "config.json", f"model {self.name}")
        kernels = remote_kernels(document)
        if kernels:
            raise ModelError(
                f"model {self.name}: config.json names kernels of the hub ({', '.join(kernels)}), which are "
                "programs and are not downloaded; remove them from config.json"
            )
        weights_file = document.get("transformers_weights")
        if weights_file:
            raise ModelError(
                f"model {self.name}: config.json names a weights file (transformers_weights: "
                f"{str(weights_file)[:80]}), which some engines ignore; rename that file to model.safetensors, "
                "and remove transformers_weights"
            )
        try:
            return AutoConfig.from_pretrained(self.path, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # a file from a stranger can make the library raise anything
            raise ModelError(f"model {self.name}: {in_one_line(error)}") from None

    def check_type(self) -> None:
        """Check that models of its type can judge texts.

        Raises:
            ModelError: they cannot, or the configuration cannot be read.
        """
        reason = why_no_judge(self.configuration)
        if reason is not None:
            raise ModelError(f"model {self.name}: {reason}; {INSTEAD}")

    @cached_property
    def config(self) -> Any:
        """Configuration of the language model; of a multimodal model, that of its text part."""
        return self.configuration.get_text_config()

    @cached_property
    def tokenizer(self) -> Any:
        try:
            tokenizer = load_tokenizer(self.path)
        except Exception as error:  # as above
            if isinstance(error, ModuleNotFoundError) and error.name == "transformers":
                raise
            raise ModelError(
                f"model {self.name}: its tokenizer cannot be loaded: {in_one_line(error)}{self._missing_reader}"
            ) from None
        if self.given_template is not None:
            tokenizer.chat_template = self.given_template.source
        return tokenizer

    @property
    def _missing_reader(self) -> str:
        """Installation hint if the tokenizer has only a SentencePiece form and its libraries are missing."""
        if (self.path / TOKENIZER_FILE).is_file() or not (self.path / "tokenizer.model").is_file():
            return ""
        try:
            require("; it has only a tokenizer.model", "sentencepiece")
        except UsageError as missing:
            return str(missing)
        return ""

    def require_template(self) -> None:
        """Check that the model has a chat template, or is to judge without one.

        Raises:
            ModelError: it has none, and none is given.
        """
        if self.given_template is None and not self.tokenizer.chat_template:
            raise ModelError(
                f"model {self.name}: has no chat template, so it may be a base model; give the file of one "
                f"with `chat_template`, or `chat_template` {NO_TEMPLATE} to judge with plain text"
            )

    @cached_property
    def prompts(self) -> PromptEncoder:
        """Encoder of prompts with the chat template; optional thinking is off."""
        return self.prompts_after()

    @cached_property
    def thinking_prompts(self) -> PromptEncoder:
        """Encoder of prompts with the chat template; optional thinking is on."""
        return self.prompts_after(thinking=True)

    def prompts_after(self, system: str = "", *, thinking: bool = False) -> PromptEncoder:
        """Return a new encoder of prompts that begin with this system prompt.

        Raises:
            ModelError: the chat template cannot hold it.
        """
        # The errors of both name the model already.
        controls = self._controls
        tokenizer = self.tokenizer
        with self._named():
            return PromptEncoder(
                tokenizer,
                system=system,
                thinking=thinking,
                template_args=self.template_args,
                controls=controls,
            )

    def tokenization_warning(self, texts: Sequence[str]) -> str | None:
        """Return in words that other programs may encode these texts of rows differently; None if not.

        transformers, and each program that uses it, may encode them by rules that are not the tokenizer.json's.
        """
        if self.is_bundled or self.is_served:
            return None
        return tokenization_warning(
            self.path, self.tokenizer, prompts=self.prompts, controls=self._controls, texts=texts
        )

    @property
    def _controls(self) -> frozenset[int]:
        """Tokens that end a turn or enclose a thought, declared by the tokenizer or not."""
        marks = (self.tokenizer.backend_tokenizer.token_to_id(text) for text in KNOWN_MARKS)
        return self.end_tokens.union(token for token in marks if token is not None)

    @property
    def _chat_template(self) -> str:
        """The source of the chat template; empty without one."""
        if not self.prompts.has_template:
            return ""
        source: str = self.tokenizer.get_chat_template()
        return source

    @cached_property
    def _added_tokens(self) -> dict[str, int]:
        """The ids of the tokenizer's added tokens, by their text."""
        added_tokens = self.tokenizer.backend_tokenizer.get_added_tokens_decoder()
        return {added.content: token for token, added in added_tokens.items()}

    @cached_property
    def thought_marks(self) -> ThoughtFormat | None:
        """The texts around a thought of the model; None if nothing ends one."""
        opened = self.thinking_prompts.open_thought
        if opened is None:
            opened = self.prompts.open_thought
        if opened is not None and opened.ends:
            return opened
        return marks_of(self._added_tokens, self._chat_template)

    @property
    def thought_tokens(self) -> ThoughtTokens:
        """The tokens around a thought of the model.

        Raises:
            ModelError: the model has no mark that ends a thought, or one that ends its turn.
        """
        marks = self.thought_marks
        if marks is None:
            raise ModelError(
                "has no token that ends its thinking, and its chat template names no text that does"
            )
        ends: int | bytes = self._added_tokens.get(marks.ends, marks.ends.encode())
        if ends in self.end_tokens:
            raise ModelError(f"ends its thinking with {marks.ends}, which ends its turn, too")
        opens: list[int] = []
        if self.thinking_prompts.open_thought is None:
            added_tokens = self._added_tokens.values()
            opens = [token for token in self._encode(marks.opens) if token in added_tokens]
        return ThoughtTokens(opens, ends, then=self._encode(marks.then))

    def _encode(self, text: str) -> list[int]:
        """Return the token ids of a text alone."""
        ids: list[int] = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def untold_thoughts(self) -> ThoughtFormat | None:
        """The format of thoughts that the model was trained to write first, and no prompt asks for.

        Its chat template names their marks, but has no switch: with thinking on and off it renders the same
        prompt, and that opens no thought. None for any other model.
        """
        if not names_thoughts(self._chat_template):
            return None
        try:
            thinking = self.thinking_prompts
        except ModelError:  # the template refuses to think, which is a switch
            return None
        has_switch = thinking.digest != self.prompts.digest
        if has_switch or thinking.open_thought is not None:
            return None
        return self.thought_marks

    @property
    def always_thinks(self) -> bool:
        """True if the chat template opens a thought before the answer even when thinking is off."""
        opened = self.prompts.open_thought
        return opened is not None and bool(opened.ends)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        # The errors of both name the model already.
        ends = self.end_tokens
        tokenizer = self.tokenizer
        size = getattr(self.config, "vocab_size", None)
        if size is None:
            model_type = self.configuration.model_type
            raise ModelError(
                f"model {self.name}: it is of type {model_type}, which has no vocabulary; {INSTEAD}"
            )
        with self._named():
            return read_vocabulary(tokenizer, size, ends)

    @property
    def context(self) -> int | None:
        """Limit of tokens of a prompt and its answer together; None if the model has no limit."""
        length = getattr(self.config, "max_position_embeddings", None)
        return int(length) if length else None

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a turn: from the configurations, the tokenizer and the chat template.

        Raises:
            ModelError: there is no such token, or a file has a value that is not a token id.
        """
        ends = self._end_ids("config.json", getattr(self.configuration, "eos_token_id", None))
        ends |= self._end_ids("config.json", getattr(self.config, "eos_token_id", None))
        ends |= self._end_ids("tokenizer_config.json", self.tokenizer.eos_token_id)
        generation = self.path / "generation_config.json"
        if generation.is_file():
            document = read_document(generation, f"model {self.name}")
            ends |= self._end_ids(generation.name, document.get("eos_token_id"))
        if self.tokenizer.chat_template:
            ends |= self._end_of_turn()
        if not ends:
            raise ModelError(
                f"model {self.name}: neither its files nor its tokenizer name an end-of-text token; set "
                "eos_token_id in generation_config.json"
            )
        return frozenset(ends)

    def _end_ids(self, file: str, eos_token_id: Any) -> set[int]:
        """Return the token ids in a file's `eos_token_id`: one, a list, or none.

        Raises:
            ModelError: a value is not a token id.
        """
        if eos_token_id is None:
            return set()
        ids = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]
        if any(type(token) is not int for token in ids):
            raise ModelError(
                f"model {self.name}: {file}: eos_token_id is {str(eos_token_id)[:80]!r}; give a token id, a "
                "whole number, or a list of them"
            )
        return set(ids)

    def _end_of_turn(self) -> set[int]:
        """Return the added token that the chat template puts after an answer, if any.

        It is not one that ends thoughts, too, as where one token ends all messages (Kimi K3).
        """
        turns = [{"role": "user", "content": "-"}, {"role": "assistant", "content": _ANSWER}]
        with self._named():
            text = render(self.tokenizer, turns, add_generation_prompt=False, template_args=self.template_args)
        if _ANSWER not in text:
            return set()
        after_answer = text.rpartition(_ANSWER)[2].lstrip()
        thought_end = self._end_of_thought()
        ends: set[int] = set()
        for token, added in self.tokenizer.backend_tokenizer.get_added_tokens_decoder().items():
            if added.special and added.content != thought_end and after_answer.startswith(added.content):
                ends.add(token)
        return ends

    def _end_of_thought(self) -> str:
        """Return the text that ends the thought that the template opens if thinking is on; else nothing."""
        turns = [{"role": "user", "content": "-"}]
        try:
            prompt = render(
                self.tokenizer,
                turns,
                add_generation_prompt=True,
                thinking=True,
                template_args=self.template_args,
            )
        except ModelError:
            return ""
        opened = open_thought(prompt)
        return "" if opened is None else opened.ends

    def read_files(self, report: Report = no_progress) -> None:
        """Compute the digests now, unless they are known.

        Args:
            report: receives the bytes that were read, and those of all files whose digest is not remembered.
        """
        if not self.is_served and "files" not in self.__dict__:
            self.__dict__["files"] = read_digests(self.path, report=report)

    @cached_property
    def files(self) -> dict[str, str]:
        """SHA-256 of each file in the directory and its subfolders, in hex."""
        return read_digests(self.path)

    @property
    def digest(self) -> str:
        """SHA-256 over the files that decide the model's answers, such as weights and chat templates."""
        return decisive_digest(self.files)
