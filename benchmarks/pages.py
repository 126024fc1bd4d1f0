"""Size, time and memory of reports, the time in which a browser loads them, and maps.

    python -m benchmarks.pages [--images DATASET --id-column COLUMN] [--rows 10000,1300000]
        [--points 20000,1000000]

Random scores of a thousand classes are reported without pictures. With a dataset, it is scored with
the built-in network and reported with pictures. Random points are drawn on a map that is zoomed and
moved, by each of the two ways of drawing. Pages load in Chromium, where that is installed.
"""

import argparse
import gzip
import resource
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import difficulty_service as ds
from benchmarks.machine import browser_program, machine
from difficulty_service.pages.scripts import module_body
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.map_points import MapPoints
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import to_samples

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
    program = browser_program()
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


MAP_SCRIPTS = ("page", "keys", "map_points", "map_data", "map_colours", "map_view", "map")
FRAMES = 90
WAYS = {
    # Imitated by the processor on a machine without a graphics processor.
    "WebGL": "GlPainter.for = (canvas) => new GlPainter(canvas, canvas.getContext('webgl2'))",
    "pixels": "GlPainter.for = () => null",
}
MAP_PAGE = """<!doctype html><style>canvas { display: block; width: 1000px; height: 692px; }</style>
<button id="theme"></button><div id="map-box"><div><canvas id="map-canvas"></canvas></div>
<div id="map-tip"></div><button id="map-in"></button><button id="map-out"></button>
<button id="map-whole"></button><input type="radio" name="colour" value="class" checked>
<ul id="map-key"></ul><div id="map-pick-box"><select id="map-pick"></select></div></div>"""
MOVE_MAP = """async ([way, frames]) => {
    eval(way);  // in the page of this benchmark, which has no policy
    const buffer = await (await fetch("http://map/points")).arrayBuffer();
    const start = performance.now(), map = new ImageMap(MapPoints.fromBytes(buffer));
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    await frame(); await frame();
    const shown = performance.now(), spent = [];
    let drawing = 0;
    const draw = map.drawing.painter.draw;
    map.drawing.painter.draw = function (...all) {
        const before = performance.now();
        draw.apply(this, all);
        drawing += performance.now() - before;
    };
    for (let step = 0; step < frames; step += 1) {
        const before = performance.now();
        if (step % 3) map.gestures.panBy(9, 5);
        else map.gestures.zoomBy(step < frames / 2 ? 1.08 : 1 / 1.08);
        await frame();
        spent.push(performance.now() - before);
    }
    spent.sort((one, other) => one - other);
    const sum = spent.reduce((one, other) => one + other);
    return [shown - start, 1000 * frames / sum, spent[Math.floor(0.95 * frames)], drawing / frames];
}"""


def write_random_map(num_points: int, folder: Path) -> bytes:
    """The data of a map of random points, of a thousand classes in clusters."""
    scores = folder / "map-scores.parquet"
    write_random_scores(scores, num_points)
    samples = to_samples(read_scores(scores))
    generator = np.random.default_rng(0)
    centres = generator.random((CLASSES, 2))
    positions = centres[samples.labels] + generator.normal(0, 0.02, (num_points, 2))
    drawn = ImageMap(np.arange(num_points), positions.clip(0, 1), "random", num_points)
    return MapPoints.of(drawn, samples, "/images").packed_bytes()


def measure_map(num_points: int, folder: Path) -> None:
    """Prints the size of a map's data and how fast it is drawn."""
    content = write_random_map(num_points, folder)
    packed = len(gzip.compress(content, 5))
    print(
        f"map of {num_points:,} points: {len(content) / MEGABYTE:.2f} MB, "
        f"{packed / MEGABYTE:.2f} MB compressed ({packed / num_points:.1f} bytes a point)"
    )
    program = browser_program()
    if program is None:
        print("no browser")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, way in WAYS.items():
            tab = browser.new_page()
            open_map(tab, content)
            first, rate, slowest, drawing = tab.evaluate(MOVE_MAP, [way, FRAMES])
            print(
                f"  by {name}: shown after {first:.0f} ms, {rate:.0f} frames a second while it is "
                f"zoomed and moved (95 % within {slowest:.0f} ms), {drawing:.1f} ms of script each"
            )
            tab.close()
        browser.close()


def open_map(tab: "Page", content: bytes) -> None:
    """Opens a page with the scripts of the map, which fetches its points."""
    static = files("difficulty_service.pages") / "static"
    # In the scope of the page, where they are measured.
    scripts = "".join(
        module_body((static / f"{name}.js").read_text("utf-8")) for name in MAP_SCRIPTS
    )
    page = f"{MAP_PAGE}<script>{scripts}</script>"
    tab.route("http://map/points", lambda route: route.fulfill(body=content))
    tab.route("http://map/", lambda route: route.fulfill(body=page, content_type="text/html"))
    tab.goto("http://map/")


def main() -> None:
    """Measures every size, and the dataset where one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images")
    parser.add_argument("--id-column")
    parser.add_argument("--rows", default="10000,1300000")
    parser.add_argument("--points", default="20000,1000000")
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as place:
        scores, page = Path(place, "scores.parquet"), Path(place, "report.html")
        if options.images:
            ds.score_dataset(
                options.images,
                out=scores,
                id_column=options.id_column,
                backbone="builtin",
                progress=False,
            )
            measure(options.images, scores, page)
        for rows in map(int, filter(None, options.rows.split(","))):
            write_random_scores(scores, rows)
            measure(f"{rows:,} random scores without pictures", scores, page)
        for number in filter(None, options.points.split(",")):
            measure_map(int(number), Path(place))


if __name__ == "__main__":
    main()
