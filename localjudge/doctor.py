"""Check whether a run can start on this machine: everything that it needs, item by item.

No check needs the library of another check, so a machine without some of the libraries can be checked, too.
Each library is imported by its own check only. Nothing is sent anywhere, except to the given server.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from localjudge.engines.engine_log import output_to
from localjudge.engines.engine_options import ServerOptions
from localjudge.engines.selection import choose_engine, engine_extras
from localjudge.errors import ModelError, SettingError, UsageError, in_one_line
from localjudge.given_template import GivenTemplate
from localjudge.models.catalogue import BUNDLED
from localjudge.models.model import Model
from localjudge.models.model_manifest import changes_since_verified
from localjudge.system import requirements
from localjudge.system.durable import free_space, unwritable
from localjudge.system.machine import Machine
from localjudge.system.requirements import install_command
from localjudge.verification import Check, check_model, is_sound, note, ok, wrong

if TYPE_CHECKING:
    from localjudge.engines.server.served_model import ServedModel

LEAST_DISK = 200 * 10**6
"""Free bytes that a run should have when it starts."""


@dataclass(frozen=True, slots=True)
class _Examination:
    """One item of what a run needs.

    Attributes:
        name: the name of the item.
        check: checks it, and returns the results.
        fix: what to do if the check raises an error that has no advice.
    """

    name: str
    check: Callable[[], Check | list[Check]]
    fix: str = ""

    def results(self) -> list[Check]:
        """Run the check and return its results; an error becomes one that is wrong."""
        try:
            checked = self.check()
        except ModuleNotFoundError as error:
            fix = self.fix if self.name == "packages" else "see packages"
            return [wrong(self.name, f"cannot be checked: {error.name} is not installed", fix)]
        except KeyboardInterrupt:
            raise
        except UsageError as error:
            problem, _, advice = str(error).removeprefix("model ").partition("; ")
            return [wrong(self.name, problem, advice or self.fix)]
        except BaseException as error:  # the other checks still run; some libraries panic or exit on import
            return [wrong(self.name, f"{type(error).__name__}: {in_one_line(error)}", self.fix)]
        return checked if isinstance(checked, list) else [checked]


def examine(
    model: str | None = None,
    engine: str = "auto",
    server: ServerOptions | None = None,
    out: Path | None = None,
    *,
    template: GivenTemplate | None = None,
) -> list[Check]:
    """Run every check of an intended run and return the results. A check that raises is wrong, with its fix.

    Args:
        model: a model directory, the id of one in the local hub cache, or None for the bundled model.
        engine: `auto`, `vllm`, `transformers` or `server`.
        server: the server, for the engine `server`.
        out: the run directory; None to check none.
        template: the chat template that replaces the model's own; None for its own.
    """
    engine, reason = choose_engine(engine)
    install = f"{install_command('cpu')}, or with a GPU {install_command('vllm')}"
    give_model = "give --model a directory, or an id in the local cache"
    examinations = [
        _Examination("packages", partial(required_packages, engine_extras(engine)), install),
        _Examination("temporary", _temporary, "set TMPDIR"),
    ]
    if out is not None:
        examinations.append(_Examination("out", partial(writable, "out", out)))
    if server is None:
        examinations.append(_Examination("engine", partial(_engine, engine, reason), install))
        examinations.append(_Examination("model", partial(_model, model, engine, template), give_model))
        examinations.append(_Examination("fit", partial(_fit, model), install))
    else:
        examinations.append(_Examination("server", partial(_server, server, model, template), give_model))
    checks = []
    for examination in examinations:
        checks.extend(examination.results())
    return checks


def required_packages(extras: Collection[str]) -> list[Check]:
    """Check the packages that localjudge and these extras of it require."""
    installed: dict[str, str] = {}
    faults = []
    for requirement in requirements.required(["", *extras], requirements.SELF):
        fix = f"pip install {requirements.quoted(requirement)}"
        version = requirements.installed(requirement.name)
        if version is None:
            faults.append(wrong("packages", f"{requirement.name} is not installed", fix))
        elif not requirement.specifier.contains(version, prereleases=True):
            problem = f"{requirement.name} {version}, but localjudge needs {requirement.specifier}"
            faults.append(wrong("packages", problem, fix))
        else:
            installed[requirement.name] = version
    with suppress(metadata.PackageNotFoundError):  # the files of such a package may have replaced ours
        other = f"localjudge {metadata.version('localjudge')}"
        problem = f"{other} is installed, another project's package with the module of {requirements.SELF}"
        faults.append(
            wrong("packages", problem, f"pip uninstall localjudge; install {requirements.SELF} again")
        )
    if not installed:
        return faults
    versions = ", ".join(f"{name} {version}" for name, version in installed.items())
    return [ok("packages", versions), *faults]


def writable(name: str, folder: Path, least: int = LEAST_DISK) -> Check:
    """Check that a folder can be written: the run directory, or that of the libraries' files."""
    problem = unwritable(folder, least)
    if not problem:
        return ok(name, f"{folder}: {free_space(folder)}")
    elsewhere = "set TMPDIR to another folder" if name == "temporary" else "give another --out"
    return wrong(name, f"{folder}: {problem}", f"free space or change the permissions, or {elsewhere}")


def _temporary() -> Check:
    """Check the folder of the libraries' files, which is looked for when this is called."""
    return writable("temporary", Path(tempfile.gettempdir()))


def _engine(engine: str, reason: str) -> Check:
    """Check that vLLM, if it is the engine, can be imported and finds a device.

    Args:
        engine: the engine.
        reason: why it was chosen.
    """
    if engine != "vllm":
        return ok("engine", f"{engine}, {reason}")
    if find_spec("vllm") is None:
        fix = f"{install_command('vllm')}, or give --engine transformers"
        return wrong("engine", "vLLM is not installed", fix)
    with output_to(Path(os.devnull)):
        import vllm
        from vllm import LLM  # noqa: F401 (what a run imports)
        from vllm.platforms import current_platform

        device = current_platform.device_type
    if not device:
        problem = f"vLLM {vllm.__version__} finds no device of the kind that it was built for"
        return wrong("engine", problem, "repair the driver, or give --engine transformers")
    return ok("engine", f"vllm {vllm.__version__} on {device}, {reason}")


def _model(name: str | None, engine: str, template: GivenTemplate | None) -> list[Check]:
    """Check that the model exists, is complete, matches its manifest and can judge."""
    model = replace(Model.locate(name), given_template=template)
    if find_spec("transformers") is None:
        return [note("model", f"{model.name}: found; not checked, because transformers is not installed")]
    from localjudge.engines.transformers.batched_types import judged_alone

    checks = check_model(model, engine=engine)
    problems = [
        Check("model", check.state, f"{model.name}: {check.name}: {check.found}", check.fix)
        for check in checks
        if check.state != "ok"
    ]
    if not is_sound(checks):
        return problems
    if engine == "transformers":
        remark = judged_alone(model.configuration.model_type)
        if remark is not None:
            problems.append(note("model", f"{model.name}: {remark}"))
    findings = {check.name: check.found for check in checks}
    context = findings["context"].partition(":")[0]
    verified = "no manifest" if changes_since_verified(model) is None else "as verified"
    description = f"{model.name}: {findings['files']}, context {context}, {verified}"
    if model.always_thinks:
        description += "; it always thinks first"
    return problems + [ok("model", description)]


def _fit(name: str | None) -> list[Check]:
    """Check that the model and at least one row fit this machine's memory."""
    from localjudge.models.capacity import CapacityPlan
    from localjudge.models.planned_model import PlannedModel

    name = BUNDLED if name is None else name
    machine = Machine.here()
    try:
        plan = CapacityPlan.make(PlannedModel.find(name), machine)
    except ModelError:
        return []  # the model check reports it, or the shape of the model is not known
    if plan.fits_here:
        return [ok("fit", plan.how)]
    if machine.memory is None and not machine.gpus:
        return [note("fit", plan.how)]
    return [wrong("fit", plan.how, f"use a smaller model or more GPUs: localjudge models plan {quote(name)}")]


def _server(options: ServerOptions, name: str | None, template: GivenTemplate | None) -> list[Check]:
    """Ask a server for its models, its version, its token table and what it enforces; no row is sent."""
    from localjudge.engines.server.connection import REQUEST_ERRORS
    from localjudge.engines.server.served_model import ServedModel
    from localjudge.engines.server.server_requests import ServerRequests
    from localjudge.engines.server.table_server import table_of

    served = ServedModel.ask(options, name, waits=False)
    answers = ok("server", f"{options.address}: answers; {served.product}; serves {served.name}")
    requests = ServerRequests(options)
    table = None
    with closing(requests), suppress(*REQUEST_ERRORS):
        if served.product.startswith("vllm"):
            table = requests.run(table_of, requests.connection, served.name)
    if table is None:
        unverified = "unverified: it applies no token table; an answer that is not whole becomes a failure"
        checks = [answers, note("kind", unverified), _form(options, served)]
        if template is not None:
            problem = f"--chat-template {template.name}: the server applies its own chat template"
            checks.append(wrong("template", problem, "leave it out, or give it to the server"))
        return checks
    return [answers, ok("kind", f"by construction, with --server-kind table: it has the token table {table}")]


def _form(options: ServerOptions, served: ServedModel) -> Check:
    """Send the trials of a run by the default rubric, and say what the server enforces of an answer."""
    from localjudge.config import JudgeConfig
    from localjudge.engines.server.text_reader import TextReader
    from localjudge.engines.server.text_server import TextServer

    reader = TextReader(JudgeConfig.from_settings(engine="server"))
    at_once = options.model_copy(update={"patience": 0.0})
    try:
        with closing(TextServer(at_once, served, reader)) as server:
            enforced = server.info.enforced
    except SettingError as error:
        return wrong("form", str(error), "correct what the server names, or wait until it has loaded its model")
    if enforced == "json_schema":
        return ok("form", "it takes the JSON schema of an answer")
    if enforced == "json_object":
        return note("form", "it takes no JSON schema, but any JSON object; the prompt says the form")
    return note("form", "it takes no JSON schema and no other JSON form; the prompt says the form")
