"""The engines' own options, read without an engine's library and before a model is looked for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from localjudge.engines.server.address import ServerAddress
from localjudge.errors import UsageError
from localjudge.models.capacity.device import Device

if TYPE_CHECKING:
    from localjudge.models.model import Model

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
"""The environment variable that makes vLLM's results independent of the batch."""


def batch_invariance(*, supported: bool) -> bool | None:
    """Return whether results are independent of the batch; None if the environment does not request it."""
    return supported if os.environ.get(BATCH_INVARIANT) == "1" else None


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """The options of the transformers engine.

    Attributes:
        batch_size: prompts at a time; None for 16 on a CPU and 64 on a GPU.
        device: the device of the model, such as `cpu` or `cuda:1`; None for the GPU if there is one.
        dtype: the type of its weights; `auto` is the model's own.
    """

    batch_size: int | None
    device: str | None
    dtype: str

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options.

        Raises:
            UsageError: an option or its value is unknown.
        """
        if unknown := set(options) - {"batch_size", "device", "dtype"}:
            raise UsageError(
                f"--engine-arg {sorted(unknown)[0]}: the transformers engine knows batch_size, device and dtype"
            )
        device = options.get("device") or None
        if device is not None:
            import torch

            try:
                torch.device(device)
            except RuntimeError:
                raise UsageError(f"--engine-arg device={device}: give cpu, cuda, cuda:1 …") from None
        try:
            batch_size = int(options["batch_size"]) if "batch_size" in options else None
        except ValueError:
            raise UsageError(f"--engine-arg batch_size={options['batch_size']}: give a whole number") from None
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"--engine-arg batch_size={batch_size}: give 1 or more")
        dtype = options.get("dtype", "auto")
        if dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise UsageError(f"--engine-arg dtype={dtype}: give auto, float32, bfloat16 or float16")
        return cls(batch_size, device, dtype)

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer: the model's limit; None if it has none."""
        return model.context


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """The options of the vLLM engine.

    Attributes:
        arguments: vLLM's own engine arguments.
    """

    arguments: Mapping[str, Any]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options: values as JSON, or as plain text. vLLM itself refuses unknown ones."""
        return cls({name: _json_or_text(text) for name, text in options.items()})

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer: the model's limit or `max_model_len`."""
        option = str(self.arguments.get("max_model_len", ""))
        limits = (model.context, int(option) if option.isdecimal() else None)
        return min((limit for limit in limits if limit), default=None)


@dataclass(frozen=True, slots=True)
class DryRunOptions:
    """The options of a dry run.

    Attributes:
        rate: rows/s of the engine that the dry run represents; None if it is not given.
        gpu: the GPU of that engine; None if it is not given.
        represented: the options of that engine. They only limit the context.
    """

    rate: float | None
    gpu: str | None
    represented: VllmOptions

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options.

        Raises:
            UsageError: the rate is not a positive number, or the GPU is unknown.
        """
        represented = VllmOptions.parse(options)
        gpu = Device.gpu(options["gpu"]).name if "gpu" in options else None
        if "rate" not in options:
            return cls(None, gpu, represented)
        try:
            rate = float(options["rate"])
        except ValueError:
            rate = 0.0
        if not 0 < rate < float("inf"):
            raise UsageError(f"--engine-arg rate={options['rate']}: give rows per second, above 0")
        return cls(rate, gpu, represented)

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer on the represented engine."""
        return self.represented.context(model)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a server as the engine.

    Attributes:
        address: the server; `server` is its URL, and `allow_host` the other hosts, with commas, to which rows
            may go.
        request_timeout: time limit of a request in seconds.
        patience: seconds without any answer after which the run ends; the same command continues it.
        retry_wait: seconds before a request is repeated; each further wait is twice as long, up to 30 s.
        max_num_seqs: the largest number of requests in flight.
        ask_again: how often an answer that is not whole is asked for again.
        top_logprobs: the number of alternatives to ask for with each token, for probabilities; 0 for none.
        seeded: whether a vLLM that applies no table gets seeds, which end a vLLM on a CPU; other servers do.
        ca_file: a file with the certificates to trust for https; None for the system's.
    """

    address: ServerAddress
    request_timeout: float = 600.0
    patience: float = 600.0
    retry_wait: float = 0.5
    max_num_seqs: int = 256
    ask_again: int = 0
    top_logprobs: int = 20
    seeded: bool = False
    ca_file: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options.

        Raises:
            UsageError: an option or its value is unknown, there is no server, or its host is not allowed.
        """
        known: dict[str, Any] = {"server": str, "allow_host": str, "ca_file": str}
        known |= {"request_timeout": float, "patience": float, "retry_wait": float}
        known |= {"max_num_seqs": int, "ask_again": int, "top_logprobs": int, "seeded": _truth}
        if unknown := sorted(set(options) - known.keys()):
            raise UsageError(f"--engine-arg {unknown[0]}: the server engine knows {', '.join(known)}")
        if not options.get("server"):
            raise UsageError("--engine server: give its URL, such as --server http://127.0.0.1:8000")
        read: dict[str, Any] = {}
        for name, text in options.items():
            try:
                read[name] = known[name](text)
            except ValueError:
                what = "true or false" if name == "seeded" else "a number"
                raise UsageError(f"--engine-arg {name}={text}: give {what}") from None
            least = {"max_num_seqs": 1, "request_timeout": 0.001}.get(name, 0)
            if not isinstance(read[name], str) and not least <= read[name] < float("inf"):
                raise UsageError(f"--engine-arg {name}={text}: give {least:g} or more")
        allowed = read.pop("allow_host", "").split(",")
        return cls(ServerAddress.parse(read.pop("server"), [name.strip() for name in allowed]), **read)

    def context(self, model: Model) -> int | None:
        """Return None: only the server knows its context, and refuses what does not fit."""
        return None


@dataclass(frozen=True, slots=True)
class TableServerOptions:
    """The options of a vLLM server with our token table.

    Attributes:
        server: the server.
        served_model: the model's name on it; None if it has only one.
        max_model_len: the server's context, if it is smaller than the model's.
    """

    server: ServerOptions
    served_model: str | None = None
    max_model_len: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options; all others are those of `ServerOptions`."""
        others = dict(options)
        name, most = others.pop("served_model", None), others.pop("max_model_len", None)
        if most is not None and not (most.isdecimal() and int(most)):
            raise UsageError(f"--engine-arg max_model_len={most}: give a whole number")
        return cls(ServerOptions.parse(others), name, int(most) if most else None)

    @property
    def address(self) -> ServerAddress:
        return self.server.address

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer: the model's limit or `max_model_len`."""
        return min((limit for limit in (model.context, self.max_model_len) if limit), default=None)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
