"""Size, time and memory of reports, and the time in which a browser loads them.

    python benchmarks/pages.py [--images DATASET --id-column COLUMN] [--rows 10000,1300000]

Random scores of a thousand classes are reported without pictures. With a dataset, it is scored with
the built-in network and reported with pictures. Pages load in Chromium, where that is installed.
"""

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from machine import machine

import difficulty_service as ds
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance

CLASSES = 1000
MEGABYTE = 1_000_000


def write_random_scores(path: Path, num_samples: int) -> None:
    """Scores of which a sixth look like another class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, num_samples)
    margins = generator.normal(-1, 1, num_samples)
    nearest = np.where(margins > 0, (labels + 1) % CLASSES, labels)
    columns = {
        "sample_id": [f"{row:08d}.jpg" for row in range(num_samples)],
        "label": labels.astype(np.int32),
        "label_name": pa.array([f"class {label}" for label in labels]).dictionary_encode(),
        "rmd": generator.normal(0, 4, num_samples),
        "md_agnostic": generator.gamma(50, 2, num_samples),
        "nearest_label": nearest.astype(np.int32),
        "label_margin": margins,
        "percentile": generator.random(num_samples, np.float32),
    }
    write_scores(path, pa.table(columns), Provenance.of({"fingerprint": str(num_samples)}))


def load_seconds(page: Path) -> str:
    """The fastest of five times from the start of navigation to the end of loading."""
    program = shutil.which("chromium")
    if program is None:
        return "no browser"
    from playwright.sync_api import sync_playwright

    spent = "performance.timing.loadEventEnd - performance.timing.navigationStart"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        times = []
        for _ in range(5):
            tab = browser.new_context(offline=True).new_page()
            tab.goto(page.as_uri())
            times.append(tab.evaluate(spent) / 1000)
        browser.close()
    return f"loads in {min(times):.2f} s"


def measure(name: str, scores: Path, page: Path) -> None:
    """Prints what one report takes."""
    import warnings

    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random scores have no images
        ds.report(scores, page)
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE
    size = page.stat().st_size / MEGABYTE
    print(
        f"{name}: {size:.2f} MB, {seconds:.1f} s ({cpu:.1f} core-seconds), process up to "
        f"{memory:,.0f} MB, {load_seconds(page)}"
    )


def main() -> None:
    """Measures every size, and the dataset where one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images")
    parser.add_argument("--id-column")
    parser.add_argument("--rows", default="10000,1300000")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as place:
        scores, page = Path(place, "scores.parquet"), Path(place, "report.html")
        if options.images:
            ds.score_dataset(
                options.images, out=scores, id_column=options.id_column, progress=False
            )
            measure(options.images, scores, page)
        for rows in map(int, options.rows.split(",")):
            write_random_scores(scores, rows)
            measure(f"{rows:,} random scores without pictures", scores, page)


if __name__ == "__main__":
    main()
