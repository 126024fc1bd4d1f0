"""The plan for very many images, beside arithmetic by hand and the numbers it starts from."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import billion
from benchmarks.billion import ENCODERS, Cluster, Encoder, plan
from docs import billion as writer

DOCS = Path(billion.__file__).parents[1] / "docs"


def test_the_page_has_the_tables_that_follow_from_rates_bytes_and_prices() -> None:
    assert writer.page() == writer.PAGE.read_text()


def test_hours_bytes_and_prices_are_those_of_arithmetic_by_hand() -> None:
    encoder = Encoder("network", 100, forward=2000, extraction=500)
    cluster = Cluster(
        images=3_600_000,
        gpus=2,
        image_bytes=50_000,
        row_bytes=100,
        score_bytes=10,
        driver_bytes=200,
        command_images=1_000_000,
        gpu_price=3.0,
        storage_price=0.02,
    )

    found = plan(encoder, cluster)

    assert found.gpu_hours == pytest.approx(2)
    assert found.hours == pytest.approx(1)
    # Two hours of three dollars for 3.6 million images.
    assert found.cents == pytest.approx(600 / 3.6)
    assert found.forward_cents == pytest.approx(150 / 3.6)
    assert found.image_terabytes == pytest.approx(0.18)
    assert found.feature_terabytes == pytest.approx(3.6e6 * 500 / 1e12)
    assert found.score_gigabytes == pytest.approx(0.036)
    assert found.gigabits == pytest.approx(0.2)
    assert found.driver_gigabits == pytest.approx(2 * 500 * 3200 / 1e9)
    assert found.driver_gigabytes == pytest.approx(0.2)
    assert found.storage_dollars == pytest.approx(1.8 * 0.02)
    assert encoder.cores_to_keep_up == 64


def test_fit_and_score_take_what_was_measured_for_the_measured_size() -> None:
    seconds = billion.score_core_seconds(
        billion.SCORED_ROWS, billion.SCORED_DIM, billion.SCORED_CLASSES
    )

    assert seconds == pytest.approx(billion.SCORED_SECONDS * billion.SCORED_CORES)
    encoder, cluster = replace(ENCODERS[0], dim=512), Cluster(images=billion.SCORED_ROWS)
    found = plan(encoder, cluster)
    assert found.score_core_hours == pytest.approx(seconds / 3600)
    assert found.score_cents == pytest.approx(100 * cluster.core_price * seconds / 3600 / 10)
    assert billion.score_core_seconds(10, 1024, 1000) > 2 * billion.score_core_seconds(
        10, 512, 1000
    )


def test_rates_are_those_of_the_page_of_benchmarks() -> None:
    text = (DOCS / "benchmarks.md").read_text()

    for encoder in ENCODERS:
        lines = text[text.index("One NVIDIA H200") :].splitlines()
        first = next(place for place, line in enumerate(lines) if encoder.name in line)
        assert f"| {encoder.forward:,} images/s |" in lines[first]
        assert f"| {encoder.extraction:,} images/s |" in lines[first + 1]
    assert f"| {billion.SCORED_ROWS:,} |" in text
    assert f"| | `file` | {billion.SCORED_SECONDS} |" in text
