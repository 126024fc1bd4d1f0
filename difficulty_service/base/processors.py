"""What the processor of this machine has instructions for."""

from collections.abc import Mapping
from typing import Any

import torch

NATIVE_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""Instructions that multiply in bfloat16, as torch names them: two of x86 and that of Arm."""


def computes_in_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16; others emulate it, and take longer."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in NATIVE_BFLOAT16)
