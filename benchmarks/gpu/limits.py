"""What the device can do at best: copy memory and multiply matrices."""

from collections.abc import Callable

import torch

from benchmarks.gpu.parts import Row, Rows, Setting

COPIED_BYTES, QUICK_BYTES = 4 << 30, 1 << 20
SIDE, QUICK_SIDE = 8192, 128
ROUNDS = 10

COPY, BFLOAT16, TF32, FLOAT32 = "copy", "bfloat16", "tf32", "float32"


def measure_limits(setting: Setting) -> Rows:
    """Bandwidth of the memory, and rates of square products in every precision."""
    yield _copy(setting)
    yield _product(setting, BFLOAT16, torch.bfloat16)
    if setting.on_gpu:  # a processor has no such mode
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            row = _product(setting, TF32, torch.float32)
        finally:
            torch.set_float32_matmul_precision(before)
        yield row
    yield _product(setting, FLOAT32, torch.float32)


def _copy(setting: Setting) -> Row:
    size = QUICK_BYTES if setting.quick else min(COPIED_BYTES, setting.free_memory() // 3)
    source = torch.zeros(size, dtype=torch.uint8, device=setting.device)
    target = torch.empty_like(source)
    seconds = _best(setting, lambda: target.copy_(source))
    rate = setting.limits[COPY] = 2 * size / seconds  # each byte is read and written
    return Row("copy within memory", rate / 1e9, "GB/s", "read and written bytes together")


def _product(setting: Setting, name: str, dtype: torch.dtype) -> Row:
    side = QUICK_SIDE if setting.quick else SIDE
    left, right = (torch.randn(side, side, device=setting.device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    seconds = _best(setting, lambda: torch.mm(left, right, out=out))
    rate = setting.limits[name] = 2 * side**3 / seconds
    return Row(f"matrix product, {name}", rate / 1e12, "TFLOP/s", f"{side:,} x {side:,}")


def _best(setting: Setting, work: Callable[[], object]) -> float:
    """Seconds of the fastest run; the first one loads kernels."""
    setting.time(work)
    return min(setting.time(work) for _ in range(ROUNDS))
