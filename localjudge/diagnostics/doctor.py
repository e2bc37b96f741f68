"""Check whether a run can start on this machine: everything that it needs, item by item.

No check needs the library of another check, so a machine without some of the libraries can be checked, too.
Each library is imported by its own check only. Nothing is sent anywhere, except to
the given Ray cluster or server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from localjudge.diagnostics import machine_checks
from localjudge.diagnostics.check_results import Check, is_sound, note, ok, wrong
from localjudge.engines.engine_options import AUTO, LOCAL, Cluster, ServerOptions
from localjudge.engines.selection import choose_engine, engine_extras
from localjudge.errors import UsageError
from localjudge.integrations.listener import LOOPBACK, Listener
from localjudge.system.requirements import install_command

_NamedCheck = tuple[str, Callable[[], Check | list[Check]]]
"""The name of a check, and the function that makes it."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The run that a user intends to start.

    Attributes:
        model: a model directory, the id of one in the local hub cache, or None for the bundled model.
        engine: `auto`, `vllm`, `transformers` or `server`.
        server: the server, for the engine `server`.
        cluster: the Ray cluster to judge on, if any.
        out: the run directory; None to check none.
        adapter: the directory of a LoRA adapter for the model, if any.
        listen: returns where an endpoint is to listen, or raises UsageError; None for a run.
    """

    model: str | None = None
    engine: str = "auto"
    server: ServerOptions | None = None
    cluster: Cluster | None = None
    out: Path | None = None
    adapter: str | None = None
    listen: Callable[[], Listener] | None = None


def examine(intent: Intent) -> list[Check]:
    """Run every check and return the results. A check that raises is reported as wrong."""
    engine, why = choose_engine(intent.engine, intent.model)
    out, cluster, listen, server = intent.out, intent.cluster, intent.listen, intent.server
    extras = [
        *engine_extras(engine, model=intent.model, adapts=intent.adapter is not None),
        *(["ray"] if cluster else []),
        *(["serve"] if listen else []),
    ]
    here: list[_NamedCheck] = [
        ("engine", lambda: machine_checks.engine_library(engine, why)),
        ("gpus", lambda: machine_checks.gpus(engine)),
        ("model", lambda: _model(intent, engine)),
        *([] if cluster and cluster.address != LOCAL else [("fit", lambda: _fit(intent.model))]),
    ]
    looks: list[_NamedCheck] = [
        ("packages", lambda: machine_checks.required_packages(extras)),
        ("temporary", machine_checks.temporary_folder),
        *([("out", lambda: machine_checks.run_folder(out))] if out else []),
        *(here if server is None else [("server", lambda: _server(server, intent.model))]),
        *([("cluster", lambda: _cluster(cluster))] if cluster else []),
        *([("endpoint", lambda: _endpoint(listen))] if listen else []),
    ]
    return [check for name, look in looks for check in _settled(name, look)]


def _settled(name: str, look: Callable[[], Check | list[Check]]) -> list[Check]:
    try:
        found = look()
    except ModuleNotFoundError as error:
        return [wrong(name, f"cannot be checked: {error.name} is not installed", _libraries())]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the other checks still run; some libraries panic or exit on import
        said = (str(error).strip().splitlines() or ["no reason given"])[0]
        return [
            wrong(
                name,
                f"{type(error).__name__}: {said}",
                f"repair or reinstall the package: {_libraries()}",
            )
        ]
    return found if isinstance(found, list) else [found]


def _libraries() -> str:
    return f"{install_command('cpu')}, or with a GPU {install_command('vllm')}"


def _model(intent: Intent, engine: str) -> list[Check]:
    """Check that the model exists, is complete, matches its manifest and can judge."""
    from localjudge.errors import ModelError
    from localjudge.models.adapter import Adapter
    from localjudge.models.model import Model

    try:
        model = Model.locate(intent.model)
        if intent.adapter:
            model = replace(model, adapter=Adapter.find(intent.adapter))
    except ModelError as error:
        found, _, fix = str(error).removeprefix("model ").partition("; ")
        return [wrong("model", found, fix or "give --model a directory, or an id in the local cache")]
    if find_spec("transformers") is None:
        return [note("model", f"{model.name}: found; not checked, because transformers is not installed")]
    from localjudge.diagnostics.verification import check_model
    from localjudge.engines.transformers.batched_types import judged_alone
    from localjudge.models.digests import changes_since_verified

    checks = check_model(model)
    problems = [
        Check("model", check.state, f"{model.name}: {check.name}: {check.found}", check.fix)
        for check in checks
        if check.state != "ok"
    ]
    if not is_sound(checks):
        return problems
    if engine == "transformers" and (remark := judged_alone(model.configuration.model_type)):
        problems.append(note("model", f"{model.name}: {remark}"))
    try:
        verified = "no manifest" if changes_since_verified(model) is None else "as verified"
    except ModelError as error:
        found, _, fix = str(error).removeprefix("model ").partition("; ")
        return [*problems, wrong("model", found, fix)]
    about = {check.name: check.found for check in checks}
    context = about["context"].partition(":")[0]
    thinks = "; it always thinks first" * model.always_thinks
    return [*problems, ok("model", f"{model.name}: {about['files']}, context {context}, {verified}{thinks}")]


def _fit(name: str | None) -> list[Check]:
    """Check that the model and at least one row fit this machine's memory."""
    from localjudge.errors import ModelError
    from localjudge.models.capacity import CapacityPlan, PlannedModel
    from localjudge.models.catalogue import BUNDLED
    from localjudge.system.machine import Machine

    name, machine = name or BUNDLED, Machine.here()
    try:
        plan = CapacityPlan.make(PlannedModel.find(name), machine)
    except ModelError:
        return []  # the model check reports it, or the shape of the model is not known
    if plan.fits_here:
        return [ok("fit", plan.how)]
    if machine.memory is None and not machine.gpus:
        return [note("fit", plan.how)]
    return [wrong("fit", plan.how, f"use a smaller model or more GPUs: localjudge models plan {quote(name)}")]


def _server(options: ServerOptions, name: str | None) -> list[Check]:
    """Ask a server for its models, its version and its token table; no row is sent."""
    from localjudge.engines.server.connection import REQUEST_ERRORS
    from localjudge.engines.server.served_model import ServedModel
    from localjudge.engines.server.server_requests import ServerRequests
    from localjudge.engines.server.table_server import table_of

    try:
        served = ServedModel.ask(options, name, waits=False)
    except UsageError as error:
        found, _, fix = str(error).partition("; ")
        return [wrong("server", found, fix or "give --model one of its models")]
    answers = ok("server", f"{options.address}: answers; {served.product}; serves {served.name}")
    requests: ServerRequests[None] = ServerRequests(options)
    table = None
    with closing(requests), suppress(*REQUEST_ERRORS):
        if served.product.startswith("vllm"):
            table = requests.run(table_of(requests.connection, served.name))
    if table is None:
        unverified = "unverified: it applies no token table; an answer that is not whole becomes a failure"
        return [answers, note("kind", unverified)]
    return [answers, ok("kind", f"by construction, with --server-kind table: it has the token table {table}")]


def _cluster(cluster: Cluster) -> list[Check]:
    """Join the given cluster, and leave it as it was. Only the address `local` starts one."""
    if find_spec("ray") is None:
        return [wrong("cluster", "Ray is not installed", install_command("ray"))]
    import ray

    from localjudge.engines.engine_log import output_to
    from localjudge.engines.ray.placement import connect

    was_connected = ray.is_initialized()
    try:
        with output_to(Path(os.devnull)):
            address = connect(cluster.address, start=cluster.address == LOCAL)
    except UsageError as error:
        is_missing = isinstance(error.__context__, ConnectionError) and "RAY_ADDRESS" not in os.environ
        if cluster.address == AUTO and is_missing:
            return [ok("cluster", "none is running; a run starts one on this machine")]
        said = str(error).removeprefix("--ray ")
        return [wrong("cluster", said, "run ray status on a node of it; ray start --head starts one")]
    try:
        nodes, has = sum(node["Alive"] for node in ray.nodes()), ray.cluster_resources()
    finally:
        if not was_connected:
            ray.shutdown()
    room = f"{address}: {nodes} node(s), {has.get('CPU', 0):g} CPUs, {has.get('GPU', 0):g} GPUs"
    if not has.get("CPU"):
        return [wrong("cluster", f"{room}; no worker has room", "add a node: ray start --address")]
    return [ok("cluster", room)]


def _endpoint(listen: Callable[[], Listener]) -> list[Check]:
    """Check where an endpoint is to listen: bind the address and release it; nobody can connect meanwhile."""
    try:
        listener = listen()
        listener.bind().close()
    except UsageError as error:
        found, _, fix = str(error).partition("; ")
        return [wrong("endpoint", found, fix)]
    scheme = "http" if listener.certfile is None else "https"
    who = "this machine" if listener.token is None else "those who have the token"
    checks = [ok("endpoint", f"{scheme}://{listener.host}:{listener.port} is free; would answer {who}")]
    if listener.certfile is None and listener.host not in LOOPBACK:
        plain = "without TLS, the rows and the token can be read on the network"
        checks.append(note("endpoint", plain, "give --certfile and --keyfile"))
    return checks
