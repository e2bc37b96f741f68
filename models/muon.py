"""The Muon optimizer in float32; PyTorch's uses bfloat16, which is 30 times slower on a CPU without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

# The quintic Newton-Schulz iteration of Jordan et al. 2024, "Muon: an optimizer for hidden layers".
COEFFICIENTS, ITERATIONS = (3.4445, -4.7750, 2.0315), 5


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Keep the singular vectors of matrices (count, rows, columns) and set their singular values to about 1."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalize(matrices.transpose(1, 2)).transpose(1, 2)
    a, b, c = COEFFICIENTS
    estimate = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = estimate @ estimate.transpose(1, 2)
        estimate = torch.baddbmm(estimate, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), estimate, beta=a)
    return estimate


class Muon(torch.optim.Optimizer):
    """Orthogonalized momentum for matrices, scaled to the step size of AdamW (Liu et al. 2025)."""

    def __init__(
        self, matrices: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            updates: dict[torch.Size, list[tuple[torch.Tensor, torch.Tensor]]] = {}
            for matrix in group["params"]:
                state: dict[str, Any] = self.state[matrix]
                if not state:
                    state["mean"] = torch.zeros_like(matrix)
                mean = state["mean"].lerp_(matrix.grad, 1 - group["momentum"])
                updates.setdefault(matrix.shape, []).append((matrix, matrix.grad.lerp(mean, group["momentum"])))
            for shape, pairs in updates.items():
                size = 0.2 * max(shape) ** 0.5 * group["lr"]
                orthogonal = orthogonalize(torch.stack([update for _, update in pairs]))
                for (matrix, _), update in zip(pairs, orthogonal, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=size)
