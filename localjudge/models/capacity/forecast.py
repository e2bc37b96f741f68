"""The forecast of a job: rows/s, hours and GPU-hours on several numbers of GPUs, or on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from localjudge.errors import ModelError
from localjudge.models.capacity.device import Device
from localjudge.models.capacity.memory import PlannedUse
from localjudge.models.capacity.throughput import Throughput, Workload, throughput
from localjudge.models.shape import Shape

GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predicted speed of a job, for several numbers of GPUs or for a CPU.

    Attributes:
        device: each GPU, or the CPU.
        work: the rows.
        expected: for each number of GPUs, the prediction; None if the model does not fit.
        slowdown: how much longer it takes if every rationale reaches its limit, as a factor.
    """

    device: Device
    work: Workload
    expected: dict[int, Throughput | None]
    slowdown: float

    @classmethod
    def make(
        cls, shape: Shape, weights: int, work: Workload, device: Device, use: PlannedUse | None = None
    ) -> Forecast:
        """Predict the speed for each of `GPU_COUNTS`, or for the CPU.

        Raises:
            ModelError: there is no row to judge, or a layer of the model is of an unknown kind.
        """
        if not work.rows:
            raise ModelError("no row can be judged, so there is no speed to predict")
        about = (shape, weights)
        counts = GPU_COUNTS if device.is_gpu else (0,)
        expected = {count: throughput(*about, work, device, use, gpus=count) for count in counts}
        slowdown = 1.0
        smallest = next((each for each in expected.values() if each), None)
        if smallest is not None:
            limit = replace(work, answer=work.answer.longest)
            longest = throughput(*about, limit, device, use, gpus=smallest.gpus)
            slowdown = longest.seconds / smallest.seconds if longest else 1.0
        return cls(device, work, expected, slowdown)

    @property
    def smallest(self) -> Throughput | None:
        """The prediction for the smallest number of GPUs that the model fits; None if it fits none."""
        return next((each for each in self.expected.values() if each), None)

    @property
    def assumptions(self) -> str:
        """One line: what the prediction assumes."""
        work, answer = self.work, self.work.answer
        shared = f" · {work.shared:.0%} of the prompt tokens from the prefix cache" * self.device.is_gpu
        return (
            f"{work.estimate}{work.rows:,} prompts of {work.mean:,.0f} tokens{shared} · rationales of "
            f"{answer.written:,.0f} tokens (at their limit of {answer.written_limit:,}, {self.slowdown:.1f} "
            f"times the hours) · {self.device.source} · without loading the model and encoding rows"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the forecast for programs."""
        return {
            "device": self.device.name,
            "rows": self.work.rows,
            "prompt_tokens": self.work.prompt_tokens,
            "shared_prompt_tokens": self.work.shared_tokens,
            "answer_tokens": self.work.answer.total,
            "hours_at_the_limit": self.slowdown,
            "expected": [
                {
                    "gpus": count,
                    "tensor_parallel_size": each.split if each else None,
                    "rows_per_second": each.rows_per_second if each else None,
                    "hours": each.hours if each else None,
                    "gpu_hours": each.hours * count if each else None,
                }
                for count, each in self.expected.items()
            ],
            "assumptions": self.assumptions,
        }
