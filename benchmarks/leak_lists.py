"""Copies across splits by inverted lists, beside comparing all samples with all.

    python -m benchmarks.leak_lists [--train 1000000] [--test 100000] [--dim 512] [--exact 50000]

Two feature stores of random vectors are written, and every twentieth sample of the test set is a
copy from the training set with noise, whose cosines go down to 0.97. A part of the training set is
searched in both ways, which gives their ratio; then the whole one by lists. What comparing all
samples with all would take is extrapolated, in proportion to the training set. Random vectors have
no clusters that lists could follow.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.leaks import COSINE, Copies, write_set
from benchmarks.machine import machine
from difficulty_service.analyses.leaks.leaks import SetLeaks, find_leaks
from difficulty_service.analyses.leaks.near_search import Search
from difficulty_service.base.process_setup import enable_avx512_kernels
from difficulty_service.scoring.splits import Split

COPIED_EVERY = 20
NOISE = 0.245
"""A copy with that much of it has a cosine of 0.971."""


def timed(train: Split, test: Split, search: Search) -> tuple[SetLeaks, float, float]:
    """What a search finds, its seconds and its processor seconds."""
    began, before = time.perf_counter(), time.process_time()
    (found,) = find_leaks(train, [test], COSINE, search=search).tests
    return found, time.perf_counter() - began, time.process_time() - before


def shown(name: str, found: SetLeaks, seconds: float, processor: float) -> str:
    """A line of what was found and how long it took."""
    lists = found.lists
    recall = "" if lists is None else f"; {lists.found} of {lists.pairs} pairs in the check"
    return (
        f"{name}: {seconds:.0f} s ({processor:.0f} of processor), {found.copies:,} copies{recall}"
    )


def main() -> None:
    """Prints a line for each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=1_000_000)
    parser.add_argument("--test", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--exact", type=int, default=50_000)
    arguments = parser.parse_args()
    enable_avx512_kernels()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        part = write_set(Path(folder) / "part", arguments.exact, arguments.dim, 0)
        copied = part.source.open_shard(0).features().clone()
        copies = Copies(copied, COPIED_EVERY, NOISE, varies=True)
        test = write_set(Path(folder) / "test", arguments.test, arguments.dim, 1, copies)
        both = [timed(part, test, search) for search in ("exact", "lists")]
        for name, result in zip(("exact", "lists"), both, strict=True):
            print(shown(f"{arguments.exact:,} x {arguments.test:,}, {name}", *result), flush=True)
        exact, lists = (processor for _, _, processor in both)
        print(f"lists take {lists / exact:.3f} of the processor time of exact, here")
        train = write_set(Path(folder) / "train", arguments.train, arguments.dim, 0)
        result = timed(train, test, "lists")
        print(shown(f"{arguments.train:,} x {arguments.test:,}, lists", *result))
        whole = exact * arguments.train / arguments.exact
        print(
            f"exact, extrapolated: {whole:.0f} s of processor, of which lists take "
            f"{result[2] / whole:.3f}; planted: {-(-arguments.test // COPIED_EVERY):,}; "
            f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB, "
            "with pages of mapped files"
        )


if __name__ == "__main__":
    main()
