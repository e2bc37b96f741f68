"""The Kubernetes recipe of a pack, held against the schemas of Kubernetes."""

from __future__ import annotations

from copy import deepcopy

import pytest
import yaml

from localjudge.airgap.pack_files import RECIPES

kubernetes_validate = pytest.importorskip("kubernetes_validate")
RECIPE = list(yaml.safe_load_all((RECIPES / "kubernetes-job.yaml").read_text()))


@pytest.mark.parametrize("version", ["1.33", "1.37"])
def test_the_recipe_fits_the_schemas_strictly(version: str) -> None:
    for resource in RECIPE:
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_field_that_kubernetes_lacks_would_be_found() -> None:
    wrong = deepcopy(RECIPE[0])
    wrong["spec"]["shards"] = 4
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)
