"""Run `localjudge` with wheels that a folder has, instead of those that pip finds in an index.

python pack_program.py WHEELS ARGUMENTS…
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import localjudge.airgap.pack
from localjudge.airgap.target_machine import Target
from localjudge.airgap.wheels import Say
from localjudge.cli import main


def gather_from(wheels: Path) -> None:
    def own_wheel(folder: Path, pip_args: Sequence[str], say: Say) -> Path:
        return next(wheels.glob("localjudge_eval-*.whl"))

    def gather_wheels(
        requirement: str, target: Target, folder: Path, pip_args: Sequence[str], say: Say
    ) -> None:
        folder.mkdir()
        for wheel in sorted(wheels.iterdir()):
            shutil.copyfile(wheel, folder / wheel.name)

    localjudge.airgap.pack.own_wheel = own_wheel  # type: ignore[attr-defined]
    localjudge.airgap.pack.gather_wheels = gather_wheels  # type: ignore[attr-defined]


if __name__ == "__main__":
    gather_from(Path(sys.argv.pop(1)).resolve())
    main()
