"""Fit and score RMD on features in memory: this project beside its peers and the machine's floor.

    python -m benchmarks.fit_and_score [--sizes small,medium,large] [--rounds 3]

Every method runs in a process of its own on the same features, with the same number of threads;
the methods take turns, and the medians over the rounds are compared. In a process a method runs
for four seconds or once, and its best run counts. All get the processor's best OpenBLAS kernels,
as `difficulty` chooses them. Extra memory is the peak of the process above what it held when
features, labels and libraries were loaded. The floor is the arithmetic that the answer needs,
N D^2 for the covariance and N (2 D r - r^2) for the scores with r = min(D, K - 1), at the rate of
this machine's fastest float32 matrix product. Core-seconds are those of all threads; their floor
has that product's rate by core-second, so that other programs hardly change their ratio.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from difficulty_service.base.process_setup import enable_avx512_kernels

SIZES = {
    "small": (50_000, 512, 10),
    "medium": (100_000, 512, 100),
    "large": (200_000, 768, 1000),
}
Numbers = Any
"""Arrays, or tensors on a device, whose packages are imported late."""
Run = Callable[[], Numbers]

OURS, FASTEST_PEER = "difficulty", "pytorch-ood"
ENOUGH_SECONDS = 4


def make_features(folder: Path, samples: int, dim: int, classes: int) -> None:
    """Classes of unequal size around their means, with a decaying spectrum within."""
    import numpy as np

    rng = np.random.default_rng(0)
    labels = rng.choice(classes, samples, p=rng.dirichlet(np.full(classes, 5.0)))
    labels[:classes] = np.arange(classes)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    mixing = (rotation * np.geomspace(1, 0.05, dim)).astype(np.float32).T
    means = rng.standard_normal((classes, dim), dtype=np.float32) @ mixing
    features = rng.standard_normal((samples, dim), dtype=np.float32) @ mixing + means[labels]
    np.save(folder / "features.npy", features)
    np.save(folder / "labels.npy", labels)


def difficulty(features: Numbers, labels: Numbers, classes: int) -> Run:  # noqa: D103
    import torch

    from difficulty_service.gaussians.fitting import fit
    from difficulty_service.scorers.mahalanobis import relative_mahalanobis

    def run() -> Numbers:
        x, y = torch.as_tensor(features), torch.as_tensor(labels)  # arrays, or on a device
        return relative_mahalanobis(fit(x, y, classes), x.device).rmd(x, y).cpu().numpy()

    return run


def pytorch_ood(features: Numbers, labels: Numbers, classes: int) -> Run:  # noqa: D103
    import torch
    from pytorch_ood.detector import RMD

    def run() -> Numbers:
        x, y = torch.as_tensor(features), torch.as_tensor(labels)
        detector = RMD(encoder=None).fit_features(x, y)
        scores = x.new_empty(len(x))
        for label in range(classes):  # its public method scores every class, not the own one
            rows = x[y == label]
            own = detector._class_score(rows, label)
            scores[y == label] = own - detector._background_score(rows)
        return scores.cpu().numpy() * len(x)  # its covariances are not divided by the sample count

    return run


def scikit_learn(features: Numbers, labels: Numbers, classes: int) -> Run:  # noqa: D103
    import numpy as np
    from sklearn.covariance import EmpiricalCovariance

    def run() -> Numbers:
        means = np.stack([features[labels == label].mean(axis=0) for label in range(classes)])
        centred = features - means[labels]
        own = EmpiricalCovariance(assume_centered=True).fit(centred).mahalanobis(centred)
        return own - EmpiricalCovariance().fit(features).mahalanobis(features)

    return run


def numpy_loop(features: Numbers, labels: Numbers, classes: int) -> Run:  # noqa: D103
    import numpy as np

    def run() -> Numbers:
        dim = features.shape[1]
        scatter = np.zeros((dim, dim), np.float32)
        means = []
        for label in range(classes):
            rows = features[labels == label]
            means.append(rows.mean(axis=0))
            scatter += (rows - means[-1]).T @ (rows - means[-1])
        precision = np.linalg.inv(scatter / len(features))
        centred = features - features.mean(axis=0)
        agnostic_precision = np.linalg.inv(centred.T @ centred / len(features))
        scores = -((centred @ agnostic_precision) * centred).sum(axis=1)
        for label in range(classes):
            rows = features[labels == label] - means[label]
            scores[labels == label] += ((rows @ precision) * rows).sum(axis=1)
        return scores

    return run


METHODS: dict[str, Callable[[Numbers, Numbers, int], Run]] = {
    OURS: difficulty,
    FASTEST_PEER: pytorch_ood,
    "NumPy loop": numpy_loop,
    "scikit-learn": scikit_learn,
}


def reference_scores(folder: Path, classes: int) -> None:
    """RMD in float64 from two passes and Cholesky factors, saved beside the features."""
    import numpy as np
    from scipy.linalg import solve_triangular

    features, labels = np.load(folder / "features.npy"), np.load(folder / "labels.npy")
    means = np.stack([features[labels == k].mean(axis=0, dtype=np.float64) for k in range(classes)])
    scores = np.zeros(len(features))
    for sign, centre in ((1, means[labels]), (-1, features.mean(axis=0, dtype=np.float64))):
        centred = features - centre
        scale_tril = np.linalg.cholesky(centred.T @ centred / len(features))
        for start in range(0, len(features), 20_000):
            rows = solve_triangular(scale_tril, centred[start : start + 20_000].T, lower=True)
            scores[start : start + 20_000] += sign * np.square(rows).sum(axis=0)
        del centred
    np.save(folder / "reference.npy", scores)


def time_once(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, core-seconds and what came out."""
    start, began = time.perf_counter(), time.process_time()
    result = run()
    return time.perf_counter() - start, time.process_time() - began, result


def run_one(method: str, folder: Path, classes: int) -> dict[str, float]:
    """Times one method in this process: seconds, core-seconds, extra megabytes, largest error."""
    import numpy as np

    features, labels = np.load(folder / "features.npy"), np.load(folder / "labels.npy")
    run = METHODS[method](features, labels, classes)
    METHODS[method](features[:10_000], labels[:10_000] * 0, 1)()  # loads libraries
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = resident("VmRSS")
    seconds, core_seconds, scores = time_once(run)
    extra = resident("VmHWM") - before
    spent = seconds
    while spent < ENOUGH_SECONDS:  # the first run also touches new memory and loads kernels
        again, core_again, _ = time_once(run)
        seconds, core_seconds = min(seconds, again), min(core_seconds, core_again)
        spent += again
    error = float(np.abs(scores - np.load(folder / "reference.npy")).max())
    return {
        "seconds": seconds,
        "core_seconds": core_seconds,
        "extra_mb": extra,
        "error": error,
    }


def resident(field: str) -> float:
    """Megabytes this process holds now (VmRSS) or held at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def gemm_rate(threads: int, multiply: Callable[[Numbers, Numbers], Numbers] | None = None) -> float:
    """Float32 operations a second of square products, one on each of `threads` threads.

    Args:
        threads: Number of products at a time.
        multiply: Multiplies two arrays; None for NumPy's product.
    """
    return _rates(threads, multiply)[0]


def _rates(
    threads: int, multiply: Callable[[Numbers, Numbers], Numbers] | None
) -> tuple[float, float]:
    """As `gemm_rate`, and by core-second."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from difficulty_service.gaussians.products import one_thread_per_product

    size = 2048
    pairs = [np.ones((2, size, size), np.float32) for _ in range(threads)]
    times = []
    with one_thread_per_product(), ThreadPoolExecutor(threads) as pool:
        for _ in range(8):
            seconds, core_seconds, _ = time_once(
                lambda: list(
                    pool.map(lambda pair: (multiply or np.matmul)(pair[0], pair[1]), pairs)
                )
            )
            times.append((seconds, core_seconds))
    seconds, core_seconds = map(min, zip(*times, strict=True))
    operations = threads * 2 * size**3
    return operations / seconds, operations / core_seconds


def gemm_rates(threads: int) -> dict[str, float]:
    """The rates of each library's product, because no library is the fastest on all processors."""
    import torch

    def by_torch(left: Numbers, right: Numbers) -> Numbers:
        return torch.mm(torch.from_numpy(left), torch.from_numpy(right))

    rates: dict[str, float] = {}
    for library, multiply in (("NumPy", None), ("torch", by_torch)):
        rates[library], rates[f"{library} by core-second"] = _rates(threads, multiply)
    return rates


def child(*arguments: str) -> dict[str, float]:
    """Runs this file in a fresh process and reads the JSON it prints."""
    command = [sys.executable, "-m", "benchmarks.fit_and_score", "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, rounds: int, methods: list[str]) -> None:
    """Prints one table for one size."""
    samples, dim, classes = SIZES[name]
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        make_features(Path(folder), samples, dim, classes)
        reference_scores(Path(folder), classes)
        results: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
        rates = []
        for _ in range(rounds):
            rates.append(child("rates", folder, str(threads)))
            for method in methods:
                results[method].append(child(method, folder, str(classes)))
    rank = min(dim, classes - 1)
    flops = samples * dim**2 + samples * (2 * dim * rank - rank**2)
    best = {library: max(rate[library] for rate in rates) for library in rates[0]}
    floor = flops / max(best["NumPy"], best["torch"])
    core_floor = flops / max(rate for name, rate in best.items() if name.endswith("core-second"))
    products = ", ".join(f"{rate / 1e9:.0f} GFLOP/s by {library}" for library, rate in best.items())
    print(f"\n{name}: {samples:,} x {dim}, {classes} classes; floor {floor:.3f} s", end="")
    print(f", {core_floor:.3f} core-seconds")
    print(f"matrix products on {threads} threads: {products}")
    print(
        f"{'method':14}{'seconds':>9}{'x floor':>9}{'core-s':>9}{'x floor':>9}{'x ours':>8}"
        f"{'extra MB':>10}{'max error':>11}"
    )
    ours = results[OURS]
    for method, runs in results.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        core = statistics.median(run["core_seconds"] for run in runs)
        ratios = [run["seconds"] / mine["seconds"] for run, mine in zip(runs, ours, strict=True)]
        memory = max(run["extra_mb"] for run in runs)
        error = max(run["error"] for run in runs)
        print(
            f"{method:14}{seconds:9.3f}{seconds / floor:9.2f}"
            f"{core:9.3f}{core / core_floor:9.2f}{statistics.median(ratios):8.1f}"
            f"{memory:10.0f}{error:11.1e}"
        )


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="medium,large", help="of small, medium, large")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS), help="ours first")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        method, folder, number = arguments.child
        os.environ.pop("OPENBLAS_CORETYPE", None)
        enable_avx512_kernels()
        print(
            json.dumps(
                gemm_rates(int(number))
                if method == "rates"
                else run_one(method, Path(folder), int(number))
            )
        )
        return
    # It imports torch and NumPy, which a child must not do so early.
    from benchmarks.machine import machine

    print(machine())
    for name in arguments.sizes.split(","):
        compare(name, arguments.rounds, arguments.methods.split(","))


if __name__ == "__main__":
    main()
