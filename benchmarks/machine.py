"""What a figure was measured on."""

import shutil
from pathlib import Path

import torch

from difficulty_service.base.threads import num_workers

BROWSERS = (
    "chromium-headless-shell",  # the same engine for two thirds of the processor time
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
)


def browser_program() -> str | None:
    """Path of the first of BROWSERS that is installed; None where none is."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def machine() -> str:
    """Processor, cores and torch, in one line; the GPU too, where there is one."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else "unknown processor"
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {num_workers()} cores{gpu}, torch {torch.__version__}"
