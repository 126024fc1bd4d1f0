"""What a GPU does with this project: its tests, extraction, statistics and training, in minutes.

    python -m benchmarks.gpu [--minutes 9] [--only PART ...] [--out gpu-results]

Needs an NVIDIA GPU and PyTorch, no network and no data: images are generated and weights are
random. A part whose packages are missing is left out, and the table says so; each has a share of
the minutes. Numbers go to `gpu.json` and, as a table, to `gpu.md`. Without a GPU
`--device cpu --quick` tries every part with tiny sizes, whose numbers mean nothing.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.gpu.parts import Part, PartResult, Setting, imported_later, run_part
from benchmarks.gpu.report import markdown, write_report
from benchmarks.gpu.suite import BAD, run_tests
from benchmarks.machine import machine
from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory

PARTS: dict[str, tuple[Part, float]] = {
    "tests": (run_tests, 120),
    "limits": (imported_later("benchmarks.gpu.limits:measure_limits"), 20),
    "extraction": (imported_later("benchmarks.gpu.encoders:measure_encoders"), 190),
    "statistics": (imported_later("benchmarks.gpu.fitting:fit_and_score"), 70),
    "losses": (imported_later("benchmarks.gpu.losses:measure_losses"), 70),
    "neighbours": (imported_later("benchmarks.gpu.neighbours:measure_neighbours"), 50),
    "near copies": (imported_later("benchmarks.gpu.near_copies:measure_near_copies"), 20),
}
"""Parts and their seconds of `USUAL_MINUTES`. The tests come first, since numbers of a project that
fails them mean little, and the limits before what is compared with them."""

USUAL_MINUTES = sum(seconds for _, seconds in PARTS.values()) / 60


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all parts; ends with an error where one of them or a test has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or with --quick cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
    parser.add_argument(
        "--minutes", type=float, default=USUAL_MINUTES, help="for all parts together"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cpu" and not options.quick:
        parser.error("a processor is only for trying the parts: add --quick")
    if device.type != "cpu" and not torch.cuda.is_available():
        sys.exit("no NVIDIA GPU answers; --device cpu --quick tries every part on the processor")
    name = machine()
    print(name, flush=True)
    results: list[PartResult] = []
    pace = options.minutes / USUAL_MINUTES
    for result in run_all(device, options.only, pace, quick=options.quick):
        results.append(result)
        files = write_report(options.out, name, results)  # what was measured outlives a stop
    print(markdown(results))
    for path in files:
        print(path)
    if failed := [each.name for each in results if has_failed(each)]:
        sys.exit(f"failed: {', '.join(failed)}")


def has_failed(result: PartResult) -> bool:
    """Whether a part ended with an error, or a test with anything but success."""
    return result.failed or any(row.what in BAD for row in result.rows)


def run_all(
    device: torch.device, chosen: Collection[str], pace: float = 1.0, *, quick: bool
) -> Iterator[PartResult]:
    """Runs one chosen part after another, in their order, and gives the result of each.

    Args:
        pace: Factor of the seconds of each part.
    """
    limits: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="difficulty-gpu-") as folder:
        for name, (part, seconds) in PARTS.items():
            if name not in chosen:
                continue
            own = Path(folder, name)
            own.mkdir()
            ends = math.inf if quick else time.monotonic() + pace * seconds
            setting = Setting(device, quick, own, ends, limits)
            result = run_part(name, part, setting)
            reason = f"; {result.left_out}" if result.left_out else ""
            print(f"{name}: {result.seconds:.0f} s{reason}", file=sys.stderr, flush=True)
            yield result


if __name__ == "__main__":
    enable_avx512_kernels()
    keep_freed_memory()
    main()
