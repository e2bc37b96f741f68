"""The quantization of published weights, from a configuration's `quantization_config`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localjudge.errors import ModelError


@dataclass(frozen=True, slots=True)
class Quantization:
    """Quantization of the weights of linear layers; embedding, head, norms and routers are not quantized.

    Attributes:
        method: its name in the configuration.
        packed_bits: bits per weight, with its share of scales and zero points; None if unknown.
        block: weights that share a scale along the dimension that GPUs divide; 0 if any division is possible.
        experts_only: only the routed experts are packed.
    """

    method: str
    packed_bits: float | None
    block: int = 0
    experts_only: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None, name: str) -> Quantization | None:
        """Return the quantization of a `quantization_config`; None without one.

        Bits per weight, scales included:

        * fp8 (DeepSeek-V3, arXiv:2412.19437, section 3.3): 8; the scale of each block of 128 by 128 is
          negligible.
        * AWQ and GPTQ: the bits, and for each group a 16-bit scale and a zero point (AutoAWQ, GPTQModel).
        * mxfp4 (OCP Microscaling Formats 1.0, section 5): 4, and 8 for each 32. gpt-oss packs its experts
          alone.
        * nvfp4: 4, and 8 for each 16.
        * bitsandbytes: 8, or 4 and a 32-bit scale for each 64, itself in 8 bits with double quantization
          (QLoRA, arXiv:2305.14314, section 3).
        * compressed-tensors: the bits that its first group of weights names, with a 16-bit scale a group.

        Raises:
            ModelError: it is not a mapping, or has no method.
        """
        if config is None:
            return None
        method = config.get("quant_method") if isinstance(config, Mapping) else None
        if not isinstance(method, str):
            raise ModelError(f"model {name}: its quantization_config has no quant_method")
        if method in ("fp8", "fbgemm_fp8"):
            sides = config.get("weight_block_size")
            return cls(method, 8, int(sides[0]) if isinstance(sides, list) and sides else 0)
        if method in ("awq", "gptq"):
            bits = int(config.get("bits") or config.get("w_bit") or 4)
            group = int(config.get("group_size") or 128)
            return cls(method, bits + (16 + bits) / group if group > 0 else bits, max(0, group))
        if method == "mxfp4":
            return cls(method, 4 + 8 / 32, experts_only=True)
        if method == "bitsandbytes":
            if config.get("load_in_8bit"):
                return cls(method, 8)
            twice = config.get("bnb_4bit_use_double_quant")
            return cls(method, 4 + (8 / 64 + 32 / (64 * 256) if twice else 32 / 64))
        if method == "modelopt":
            algorithm = str(config.get("quant_algo", "")).upper()
            return cls(method, {"FP8": 8, "NVFP4": 4 + 8 / 16}.get(algorithm))
        if method == "compressed-tensors":
            return _compressed(method, config)
        return cls(method, None)

    @property
    def bits(self) -> float:
        """Bits per packed weight.

        Raises:
            ModelError: the number is not known.
        """
        if self.packed_bits is None:
            raise ModelError(
                f"the size of weights quantised by {self.method} cannot be computed from a configuration; "
                "give a directory with the weights"
            )
        return self.packed_bits


def _compressed(method: str, config: Mapping[str, Any]) -> Quantization:
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping) or not isinstance(weights.get("num_bits"), int):
        return Quantization(method, None)
    bits, group = weights["num_bits"], weights.get("group_size")
    if not isinstance(group, int) or group < 1:
        return Quantization(method, bits)
    scale = 8 if weights.get("type") == "float" and bits == 4 else 16
    return Quantization(method, bits + scale / group, group)
