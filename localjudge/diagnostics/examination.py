"""Whether a run would start on this machine: everything that it would need, looked at one by one.

No check needs another's library: a machine on which half of them are missing is one to examine, too. So
nothing is imported here before it is looked at. Nothing is sent anywhere but to the Ray cluster that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from localjudge.diagnostics.checks import Check, is_sound, note, ok, wrong
from localjudge.engines.cluster import LOCAL, Cluster
from localjudge.system.requirements import install_command


@dataclass(frozen=True, slots=True)
class Intent:
    """What is to be run.

    Attributes:
        model: a model directory, the id of one in the local hub cache, or None for the bundled one.
        engine: `auto`, `vllm` or `transformers`.
        cluster: the Ray cluster to judge on, if any.
        out: the run directory; None for no particular one.
        switched: variables that the user has set to another value than the command line would, with both.
    """

    model: str | None = None
    engine: str = "auto"
    cluster: Cluster | None = None
    out: Path | None = None
    switched: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def examine(intent: Intent) -> list[Check]:
    """Every check. None raises: one that breaks is found wrong."""
    from localjudge.diagnostics import hardware, packages, storage, surroundings

    engine, why = _engine(intent.engine)
    out, cluster = intent.out, intent.cluster
    extras = ["vllm" if engine == "vllm" else "cpu", *(["ray"] if cluster else [])]
    shared = [name for name, used in (("vLLM", engine == "vllm"), ("Ray", cluster)) if used]
    looks: list[tuple[str, Callable[[], Check | list[Check]]]] = [
        ("python", packages.python),
        ("packages", lambda: packages.installed(extras)),
        ("outlines", packages.outlines),
        ("torch", packages.torch_build),
        (
            "engine",
            lambda: packages.vllm_runner(why) if engine == "vllm" else ok("engine", f"transformers, {why}"),
        ),
        ("gpus", lambda: hardware.gpus(engine)),
        ("cpus", hardware.cpus),
        ("memory", hardware.memory),
        ("cache", storage.cache),
        ("temporary", storage.temporary),
        *([("out", lambda: storage.out(out))] if out else []),
        *([("shm", lambda: storage.shared_memory(shared))] if shared else []),
        ("offline", lambda: surroundings.offline(intent.switched)),
        ("hub cache", surroundings.hub_cache),
        ("model", lambda: _model(intent)),
        *([("fit", lambda: _fit(intent.model))] if not cluster or cluster.address == LOCAL else []),
        *([("cluster", lambda: _cluster(cluster))] if cluster else []),
    ]
    return [check for name, look in looks for check in _settled(name, look)]


def _settled(name: str, look: Callable[[], Check | list[Check]]) -> list[Check]:
    try:
        found = look()
    except ModuleNotFoundError as error:
        return [wrong(name, f"cannot be checked: {error.name} is not installed", _libraries())]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an examination goes on; some libraries panic or exit as they are imported
        said = (str(error).strip().splitlines() or ["no reason given"])[0]
        return [
            wrong(
                name, f"{type(error).__name__}: {said}", f"mend or reinstall what is behind it: {_libraries()}"
            )
        ]
    return found if isinstance(found, list) else [found]


def _libraries() -> str:
    return f"{install_command('cpu')}, or where there is a GPU {install_command('vllm')}"


def _engine(asked: str) -> tuple[str, str]:
    """The engine that a run would take, and why."""
    if asked != "auto":
        return asked, "as asked"
    if find_spec("vllm") is None:
        return "transformers", "because vLLM is not installed"
    try:
        import torch

        there = torch.cuda.is_available()
    except Exception:  # found wrong where torch is looked at
        there = False
    return ("vllm", "because there is a GPU") if there else ("transformers", "because there is no GPU for vLLM")


def _model(intent: Intent) -> list[Check]:
    """The model is there, whole, the one that was verified, and able to judge."""
    from localjudge.errors import ModelError
    from localjudge.models.model import Model

    try:
        model = Model.locate(intent.model)
    except ModelError as error:
        found, _, mend = str(error).removeprefix("model ").partition("; ")
        return [wrong("model", found, mend or "give --model a directory, or an id in the local cache")]
    if find_spec("transformers") is None:
        return [note("model", f"{model.name}: there, but not looked at without transformers")]
    from localjudge.diagnostics.verification import examine as examine_model
    from localjudge.models.model_manifest import changes_since_verified

    checks = examine_model(model)
    told = [
        Check("model", check.state, f"{model.name}: {check.name}: {check.found}", check.mend)
        for check in checks
        if check.state != "ok"
    ]
    if not is_sound(checks):
        return told
    try:
        verified = "no manifest" if changes_since_verified(model) is None else "as verified"
    except ModelError as error:
        found, _, mend = str(error).removeprefix("model ").partition("; ")
        return [*told, wrong("model", found, mend)]
    about = {check.name: check.found for check in checks}
    context = about["context"].partition(":")[0]
    return [*told, ok("model", f"{model.name}: {about['files']}, context {context}, {verified}")]


def _fit(name: str | None) -> list[Check]:
    """The model and a row or more of its work fit the memory that is here."""
    from localjudge.errors import ModelError
    from localjudge.models.capacity import CapacityPlan, PlannedModel
    from localjudge.models.memory import GIB, Use
    from localjudge.models.model import BUNDLED
    from localjudge.system.machine import Machine

    name, machine = name or BUNDLED, Machine.here()
    try:
        plan = CapacityPlan.make(PlannedModel.find(name), Use(), machine, gpu_memory=80 * GIB)
    except ModelError:
        return []  # found wrong where the model is looked at, or of a shape that says nothing
    fits, how = plan.fits_here
    if fits:
        return [ok("fit", how)]
    if machine.memory is None and not machine.gpus:
        return [note("fit", how)]
    return [wrong("fit", how, f"take a smaller model, or more GPUs: localjudge models plan {quote(name)}")]


def _cluster(cluster: Cluster) -> list[Check]:
    if find_spec("ray") is None:
        return [wrong("cluster", "Ray is not installed", install_command("ray"))]
    from localjudge.diagnostics.ray_check import examine_cluster

    return examine_cluster(cluster)
