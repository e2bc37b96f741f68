"""Tests of the flags of a cluster."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from localjudge import Judge, UsageError
from localjudge.engines.engine_options import Cluster


@pytest.mark.parametrize(
    ("flags", "cluster"),
    [
        ((None, None, None), None),
        (("auto", None, None), Cluster("auto")),
        (("local", "4", None), Cluster("local", (4, 4))),
        (("10.0.0.1:6379", "1:8", 2.0), Cluster("10.0.0.1:6379", (1, 8), 2.0)),
        (("local", None, 0.5), Cluster("local", None, 0.5)),
        (("local", None, 0.0), Cluster("local", None, 0.0)),
    ],
)
def test_flags_say_which_cluster(
    flags: tuple[str | None, str | None, float | None], cluster: Cluster | None
) -> None:
    assert Cluster.parse(*flags) == cluster


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((None, "2", None), "`num_workers` 2: needs a cluster: give `ray`"),
        ((None, None, 1.0), "`gpus_per_worker` 1.0: needs a cluster: give `ray`"),
        (("ray://head:10001", None, None), "run this on a node of the cluster"),
        (("head", None, None), "`ray` head: give auto, local or the HOST:PORT"),
        (("local", "0", None), "`num_workers` 0: give N or MIN:MAX"),
        (("local", "4:2", None), "`num_workers` 4:2: give N or MIN:MAX"),
        (("local", "many", None), "`num_workers` many: give N or MIN:MAX"),
        (("local", None, 1.5), "`gpus_per_worker` 1.5: give 0, a fraction below 1, or a whole number"),
        (("local", None, -1.0), "`gpus_per_worker` -1: give 0, a fraction"),
    ],
)
def test_flags_that_make_no_sense_are_named(
    flags: tuple[str | None, str | None, float | None], message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        Cluster.parse(*flags)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_without_ray_the_command_that_installs_it_is_named(model: Path) -> None:
    with pytest.raises(UsageError, match=r'a Ray cluster: ray is not installed: pip install "ray=='):
        Judge(model, cluster=Cluster("local")).engine  # noqa: B018
