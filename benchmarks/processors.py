"""Do all processors give the same scores? The largest differences between their instruction sets.

Run: python -m benchmarks.processors [--images 10000]
     python -m benchmarks.processors --as AVX2 [--threads 1] [--unless-native] COMMAND...

The first prints the table; the second runs a command as on such a processor, with `--unless-native`
only where this one is another.

The digits of the demo and CIFAR-10's test images, read from DIFFICULTY_SHARED (default ../shared),
are scored with the built-in encoder in float32, as each processor of `INSTRUCTION_SETS` that this
one can stand in for would, with one thread and with two. Every row is compared with the last set
and two threads.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.machine import machine
from benchmarks.real_data import shared_folder

SHARED = shared_folder()
CIFAR10 = SHARED / "data" / "cifar10_test.parquet"


@dataclass(frozen=True)
class InstructionSet:
    """What a processor can do, and how libraries are told to do no more.

    Attributes:
        flag: Feature in /proc/cpuinfo without which the set cannot run.
        environment: Variables of torch (ATen, oneDNN, MKL), OpenBLAS, NumPy, faiss and Arrow.
    """

    flag: str
    environment: Mapping[str, str]


def _environment(  # noqa: PLR0913 - one name for each library
    *, aten: str, onednn: str, mkl: str, openblas: str, without: str, faiss: str, arrow: str
) -> dict[str, str]:
    return {
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
        "OPENBLAS_CORETYPE": openblas,
        "NPY_DISABLE_CPU_FEATURES": without,
        "FAISS_SIMD_LEVEL": faiss,
        "ARROW_USER_SIMD_LEVEL": arrow,
    }


INSTRUCTION_SETS = {
    "SSE4.2": InstructionSet(
        "sse4_2",
        _environment(
            aten="default",
            onednn="SSE41",
            mkl="SSE4_2",
            openblas="Nehalem",
            without="X86_V3,X86_V4,AVX512_ICL,AVX512_SPR",
            faiss="NONE",
            arrow="SSE4_2",
        ),
    ),
    "AVX2": InstructionSet(
        "avx2",
        _environment(
            aten="avx2",
            onednn="AVX2",
            mkl="AVX2",
            openblas="Haswell",
            without="X86_V4,AVX512_ICL,AVX512_SPR",
            faiss="AVX2",
            arrow="AVX2",
        ),
    ),
    "AVX-512": InstructionSet(
        "avx512bw",
        _environment(
            aten="avx512",
            onednn="AVX512_CORE",
            mkl="AVX512",
            openblas="SkylakeX",
            without="",
            faiss="AVX512",
            arrow="AVX512",
        ),
    ),
}


def available() -> dict[str, InstructionSet]:
    """The instruction sets that this processor has."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return {name: each for name, each in INSTRUCTION_SETS.items() if each.flag in flags}


def environment_of(name: str, threads: int) -> dict[str, str]:
    """The environment of a process that computes as a processor with such instructions."""
    chosen = INSTRUCTION_SETS[name].environment
    return {**os.environ, **chosen, "OMP_NUM_THREADS": str(threads)}


def save_scores(path: Path, images: int) -> None:
    """Scores both datasets in this process, and writes what is compared of them."""
    import torch

    import difficulty_service as ds

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    arrays: dict[str, NDArray[np.float64]] = {}
    digits = str(files("difficulty_service.demo") / "digits.parquet")
    datasets = {"demo": (digits, "id", None), "CIFAR-10 test": (str(CIFAR10), "index", images)}
    for name, (location, id_column, limit) in datasets.items():
        if Path(location).is_file():
            scores = ds.score_dataset(
                location,
                id_column=id_column,
                limit=limit,
                precision="fp32",
                scorers=("rmd", "suspicion"),
                progress=False,
                backbone="builtin",
            )
            table = scores.to_pandas()
            for column in ("rmd", "label_margin", "suspicion"):
                arrays[f"{name}/{column}"] = table[column].to_numpy(np.float64)
    np.savez(path, allow_pickle=False, **arrays)


def difference(
    scores: Mapping[str, NDArray[np.float64]],
    reference: Mapping[str, NDArray[np.float64]],
    dataset: str,
) -> str:
    """What differs of the scores of a dataset, as the cells of a row."""
    rmd, other = (each[f"{dataset}/rmd"] for each in (scores, reference))
    moved = np.abs(rankdata(rmd) - rankdata(other))
    flags = [
        str(int(np.count_nonzero((scores[column] > 0) != (reference[column] > 0))))
        for column in (f"{dataset}/label_margin", f"{dataset}/suspicion")
    ]
    return (
        f"{np.abs(rmd - other).max():.1e} | {int(np.count_nonzero(moved))} | {moved.max():.0f} | "
        f"{' | '.join(flags)}"
    )


def main() -> None:
    """Reads the command line and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--as", dest="name", choices=INSTRUCTION_SETS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--unless-native", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.save:
        save_scores(options.save, options.images)
    elif options.name and options.unless_native and options.name == list(available())[-1]:
        print(f"{options.name}: this processor has no more, so nothing is run apart")
    elif options.name:
        run_as(options.name, options.threads, options.command)
    else:
        print_table(options.images)


def run_as(name: str, threads: int, command: Sequence[str]) -> None:
    """Becomes a command that computes as a processor with such instructions."""
    if name not in available():
        print(f"{name}: this processor does not have it, so nothing is run")
        return
    print(f"{name}, OMP_NUM_THREADS={threads}", flush=True)
    os.execvpe(command[0], list(command), environment_of(name, threads))  # noqa: S606


def print_table(images: int) -> None:
    """Scores in a process of each kind, and prints what differs."""
    print(machine())
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in available():
            for threads in (1, 2):
                path = Path(folder, f"{name}-{threads}.npz")
                command = f"-m benchmarks.processors --save {path} --images {images}".split()
                subprocess.run(  # noqa: S603 - this module
                    [sys.executable, *command], env=environment_of(name, threads), check=True
                )
                results[name, threads] = dict(np.load(path))
    reference = results[list(available())[-1], 2]
    for dataset in dict.fromkeys(key.partition("/")[0] for key in reference):
        spread = reference[f"{dataset}/rmd"].std()
        print(
            f"\n{dataset}: {len(reference[f'{dataset}/rmd'])} images, standard deviation of rmd "
            f"{spread:.1f}\n\n"
            "| instructions | threads | largest difference of `rmd` | images of another rank | "
            "by at most | on the other side of 0: `label_margin` | `suspicion` |\n"
            "| --- | --: | --: | --: | --: | --: | --: |"
        )
        for (name, threads), scores in results.items():
            print(f"| {name} | {threads} | {difference(scores, reference, dataset)} |")


if __name__ == "__main__":
    main()
