"""The engines' own options and the cluster's, read without a library and before a model is looked for."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from localjudge.errors import SettingError
from localjudge.secret_options import masked_option

if TYPE_CHECKING:
    from localjudge.models.model import Model

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
"""The environment variable that makes vLLM's results independent of the batch."""
_SOCKET = "unix:"


def batch_invariance(*, supported: bool) -> bool | None:
    """Return whether results are independent of the batch; None if the environment does not request it."""
    if os.environ.get(BATCH_INVARIANT) != "1":
        return None
    return supported


def _device(text: str) -> str | None:
    if not text:
        return None
    import torch

    try:
        return str(torch.device(text))
    except RuntimeError as error:
        raise ValueError(error) from None


class _Options(BaseModel):
    """Options by name; the description of a field says what to give."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    engine: ClassVar[str]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options.

        Raises:
            SettingError: an option or its value is unknown; a server is missing, or its host is not allowed.
        """
        try:
            return cls.model_validate(options)
        except ValidationError as error:
            first = error.errors()[0]
        name = str(first["loc"][0])
        if name not in cls.model_fields:
            names = ", ".join(cls.model_fields)
            raise SettingError("engine_args", name, f"the {cls.engine} engine knows {names}")
        advice = f"give {cls.model_fields[name].description}"
        raise _refused_option(name, options[name], advice)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the names of the options that are given; a value can be a secret."""
        for name in self.model_fields_set:
            yield None, name


def _refused_option(name: str, value: str, advice: str) -> SettingError:
    """Return the error of an option with a value that it cannot have; secrets in it are masked."""
    shown = masked_option(name, value).shown
    return SettingError("engine_args", f"{name}={shown}", advice)


HeadDtype = Literal["auto", "float32", "model"]
"""The type of the last layer: `model` for that of the weights, `auto` for the engine's choice."""


class _HeadOption(_Options):
    """The option for the last layer, of the engines that load a model."""

    engine = "vllm"
    head_dtype: HeadDtype = Field("auto", description="auto, float32 or model")


class TransformersOptions(_HeadOption):
    """The options of the transformers engine.

    Attributes:
        batch_size: prompts at a time; None for 16 on a CPU and 64 on a GPU.
        device: the device of the model, such as `cpu` or `cuda:1`; None for the GPU if there is one.
        dtype: the type of its weights; `auto` is the model's own.
        head_dtype: the type in which the last layer is computed where a value is picked: `float32`, or `model`
            for that of the weights; `auto` is float32, unless the layer is quantized.
    """

    engine = "transformers"
    batch_size: int | None = Field(None, ge=1, description="a whole number, 1 or more")
    device: Annotated[str, AfterValidator(_device)] | None = Field(None, description="cpu, cuda, cuda:1 …")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto, float32, bfloat16 or float16"
    )

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer: the model's limit; None if it has none."""
        return model.context


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """The options of the vLLM engine.

    Attributes:
        arguments: vLLM's own engine arguments; some can be secrets, so `repr` leaves them out.
        head_dtype: the type in which the last layer is computed: `float32`, or `model` for that of the weights;
            `auto` is float32 on a GPU, unless the layer is quantized (`localjudge.engines.vllm.head_type`).
    """

    arguments: Mapping[str, Any] = field(repr=False)
    head_dtype: HeadDtype = "auto"

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read normalized options: values as JSON, or as plain text. vLLM itself refuses unknown ones.

        Raises:
            SettingError: `head_dtype` is none of its values, `hf_overrides` is not an object, or has a
                `head_dtype`, too.
        """
        texts = dict(options)
        head_dtype = _HeadOption.parse({"head_dtype": texts.pop("head_dtype", "auto")}).head_dtype
        arguments = {name: _json_or_text(text) for name, text in texts.items()}
        overrides = arguments.get("hf_overrides", {})
        if not isinstance(overrides, dict):
            raise _refused_option("hf_overrides", texts["hf_overrides"], "give a JSON object")
        if "head_dtype" in overrides:
            advice = "give its head_dtype as an option of its own: head_dtype=float32 or head_dtype=model"
            raise _refused_option("hf_overrides", texts["hf_overrides"], advice)
        return cls(arguments, head_dtype)

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer: the model's limit or `max_model_len`."""
        option = str(self.arguments.get("max_model_len", ""))
        if not option.isdecimal():
            return model.context
        return _smaller(model.context, int(option))


class DryRunOptions(_Options):
    """The options of a dry run. Those of the vLLM engine that it represents only limit the context.

    Attributes:
        rate: rows/s of that engine; None if it is not given.
    """

    model_config = ConfigDict(extra="allow")
    rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="rows per second, above 0")

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer on the represented engine."""
        extra = {} if self.model_extra is None else self.model_extra
        return VllmOptions.parse(extra).context(model)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server: by default on this machine, another host only by name.

    Attributes:
        base: the URL of its API without a slash at the end, such as `http://127.0.0.1:8000/v1`.
        socket: the Unix socket; None for a host.
    """

    base: str
    socket: str | None = None

    @classmethod
    def parse(cls, text: str, allowed: Collection[str] = ()) -> Self:
        """Read the URL of a server; a URL without a path gets `/v1`.

        Args:
            text: a URL of http or https, or `unix:/path/of/socket`.
            allowed: the names of other hosts than this machine to which rows may go.

        Raises:
            SettingError: it is not such a URL, or its host is not allowed.
        """
        if text.startswith(_SOCKET):
            path = text.removeprefix(_SOCKET)
            if path.startswith("//"):
                path = "/" + path.lstrip("/")
            if not Path(path).is_absolute():
                raise SettingError("server", text, "give the whole path, such as unix:/run/judge.sock")
            return cls("http://localhost/v1", path)
        shown = _without_secrets(text)
        try:
            url = urlsplit(text)
            _ = url.port
        except ValueError:
            advice = "is not a URL; give one such as http://127.0.0.1:8000"
            raise SettingError("server", shown, advice) from None
        host = url.hostname
        if url.scheme not in ("http", "https") or not host:
            advice = "give a URL such as http://127.0.0.1:8000, or unix:/run/judge.sock"
            raise SettingError("server", shown, advice)
        if url.username is not None or url.query or url.fragment:
            advice = "give the URL without a name, a password or a query; a key goes into the variable"
            raise SettingError("server", shown, f"{advice} LOCALJUDGE_SERVER_KEY")
        if host not in {name.lower() for name in allowed} and not _is_this_machine(host):
            advice = f"{host} is not this machine, and rows stay on it; to send them to that host, name it"
            raise SettingError("server", text, f"{advice}: `allow_host` {host}")
        path = url.path.rstrip("/")
        if not path:
            path = "/v1"
        return cls(f"{url.scheme}://{url.netloc}{path}")

    @property
    def root(self) -> str:
        """The URL of the server without the path of its API."""
        return self.base.removesuffix("/v1")

    def __str__(self) -> str:
        if self.socket:
            return f"{_SOCKET}{self.socket}"
        return self.base


class ConnectionOptions(_Options):
    """The options of a model server.

    Attributes:
        server: the URL of the server.
        allow_host: the other hosts, with commas, to which rows may go.
        request_timeout: time limit of a request in seconds.
        patience: seconds without any answer after which the run ends; the same command continues it.
        retry_wait: seconds before a request is repeated; each further wait is twice as long, up to 30 s.
        max_num_seqs: the largest number of requests in flight.
        top_logprobs: the number of alternatives to ask for with each token, for probabilities; 0 for none.
    """

    engine = "server"
    server: str = ""
    allow_host: str = ""
    request_timeout: float = Field(600.0, ge=0.001, allow_inf_nan=False, description="a number, 0.001 or more")
    patience: float = Field(600.0, ge=0, allow_inf_nan=False, description="a number, 0 or more")
    retry_wait: float = Field(0.5, ge=0, allow_inf_nan=False, description="a number, 0 or more")
    max_num_seqs: int = Field(256, ge=1, description="a whole number, 1 or more")
    top_logprobs: int = Field(20, ge=0, description="a whole number, 0 or more")

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        _ = self.address
        return self

    @cached_property
    def address(self) -> ServerAddress:
        """The address of the server."""
        if not self.server:
            raise SettingError("engine", "server", "give its URL, such as `server` http://127.0.0.1:8000")
        return ServerAddress.parse(self.server, [name.strip() for name in self.allow_host.split(",")])


class ServerOptions(ConnectionOptions):
    """The options of a server that answers with text."""

    def context(self, model: Model) -> int | None:
        """Return None: only the server knows its context, and refuses what does not fit."""
        return None


class TableServerOptions(ConnectionOptions):
    """The options of a vLLM server with our token table.

    Attributes:
        served_model: the model's name on it; None if it has only one.
        max_model_len: the server's context, if it is smaller than the model's.
    """

    served_model: str | None = None
    max_model_len: int | None = Field(None, ge=1, description="a whole number, 1 or more")

    def context(self, model: Model) -> int | None:
        """Return the most tokens of a prompt and its answer: the model's limit or `max_model_len`."""
        return _smaller(model.context, self.max_model_len)


def _without_secrets(address: str) -> str:
    """Return a text that may be a URL without what can be a secret: a name, a password, a query, a fragment."""
    scheme, slashes, location = address.rpartition("://")
    without_query = re.split("[?#]", location, maxsplit=1)[0]
    return f"{scheme}{slashes}{without_query.rpartition('@')[2]}"


def _smaller(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit), default=None)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _is_this_machine(host: str) -> bool:
    """Return whether a host is a loopback address, or the name `localhost` for one."""
    if host != "localhost":
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False
    try:
        addresses = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ip_address(str(address[4][0])).is_loopback for address in addresses)


AUTO = "auto"
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster and the workers requested from it.

    Attributes:
        address: `auto` (a running cluster if Ray finds one, else this machine), `local` (this machine), or the
            HOST:PORT of a running cluster to which this machine belongs.
        workers: minimum and maximum; None for as many as the cluster can hold when the run joins it.
        gpus_per_worker: a fraction of a GPU, or whole GPUs; None to follow the engine's tensor_parallel_size
            if there are GPUs.
    """

    address: str = LOCAL
    workers: tuple[int, int] | None = None
    gpus_per_worker: float | None = None

    @classmethod
    def parse(
        cls, ray: str | None, num_workers: str | None = None, gpus_per_worker: float | None = None
    ) -> Cluster | None:
        """Return the cluster that these settings request; None without an address, `ray`.

        Raises:
            SettingError: the settings are invalid.
        """
        if ray is None:
            for name, value in (("num_workers", num_workers), ("gpus_per_worker", gpus_per_worker)):
                if value is not None:
                    advice = "needs a cluster: give `ray` local, auto or an address, too"
                    raise SettingError(name, value, advice)
            return None
        if ray.startswith("ray://"):
            advice = "Ray's client protocol is not supported; run this on a node of the cluster, and give auto"
            raise SettingError("ray", ray, f"{advice} or HOST:PORT")
        if ray not in (AUTO, LOCAL) and not re.fullmatch(r"\S+:\d+", ray):
            raise SettingError("ray", ray, "give auto, local or the HOST:PORT of a cluster")
        gpus = gpus_per_worker
        if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus == int(gpus))):
            raise SettingError("gpus_per_worker", f"{gpus:g}", "give 0, a fraction below 1, or a whole number")
        return cls(ray, None if num_workers is None else _bounds(num_workers), gpus)


def _bounds(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    if match is None:
        raise _refused_bounds(text)
    fewest = int(match[1])
    most = fewest if match[2] is None else int(match[2])
    if not 1 <= fewest <= most:
        raise _refused_bounds(text)
    return fewest, most


def _refused_bounds(text: str) -> SettingError:
    return SettingError("num_workers", text, "give N or MIN:MAX, each at least 1")
