"""Figures of score files: their numbers by a naive version, and what is left out."""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.factories import write_score_file
from tests.trainer.reports.figures.drawn import figures_in, predictions_of, reasons_in
from trainer.reports.figures.figure import Figure
from trainer.reports.figures.scores import error_figures, severity_figures, sheet_figures
from trainer.reports.figures.sources import read_sources


def test_errors_are_counted_in_bins_of_equal_size_from_easy_to_hard(
    run: Path, tmp_path: Path
) -> None:
    saved = predictions_of(run, 0)
    generator = np.random.default_rng(0)
    scores = dict(zip(saved.sample_ids, generator.permutation(31) - 9.5, strict=True))
    first = saved.sample_ids[0]
    scores[first] = np.nan
    path = write_score_file(tmp_path / "scores.parquet", scores)

    drawn = error_figures(read_sources([path, run], "rmd"))

    (figure,) = figures_in(drawn).values()
    wrong = dict(zip(saved.sample_ids, saved.logits.argmax(1) != saved.targets, strict=True))
    order = sorted((each for each in scores if each != first), key=lambda each: scores[each])
    for number, row in enumerate(figure.rows[:10]):
        own = order[3 * number : 3 * number + 3]
        assert row["error_rate"] == pytest.approx(sum(int(wrong[each]) for each in own) / 3)
        assert (row["lowest"], row["highest"]) == (scores[own[0]], scores[own[-1]])
    assert len(figure.rows) == 20
    assert f"error-over-difficulty: {path}: 1 of 31 samples have no score (a $ b: seed 1)" in (
        reasons_in(drawn)
    )


@pytest.mark.parametrize("num_bins", [2, 31])
def test_the_number_of_bins_can_be_chosen(run: Path, tmp_path: Path, num_bins: int) -> None:
    saved = predictions_of(run, 0)
    scores = {each: float(rank) for rank, each in enumerate(saved.sample_ids)}
    path = write_score_file(tmp_path / "scores.parquet", scores)

    sources = replace(read_sources([path, run], "rmd"), num_bins=num_bins)

    (figure,) = figures_in(error_figures(sources)).values()
    own = [row for row in figure.rows if row["seed"] == 0]
    wrong = (saved.logits.argmax(1) != saved.targets).numpy()
    assert [row["error_rate"] for row in own] == [
        pytest.approx(part.mean()) for part in np.array_split(wrong, num_bins)
    ]
    assert f"in {num_bins} bins" in figure.caption


def test_scores_of_other_samples_give_no_error_rates(run: Path, tmp_path: Path) -> None:
    path = write_score_file(tmp_path / "scores.parquet", {"elsewhere": 1.0})

    drawn = error_figures(read_sources([run, path], "rmd"))

    assert figures_in(drawn) == {}
    assert "0 of its samples have a score, fewer than 10 bins" in reasons_in(drawn)[0]


def severities(folder: Path, values: Sequence[tuple[str | None, float]], **more: Any) -> list[Path]:  # noqa: ANN401
    paths = []
    for number, (corruption, shift) in enumerate(values):
        named = {} if corruption is None else {"corruption": corruption}
        scores = {f"{each}": each + shift for each in range(4)}
        path = folder / f"{more.get('backbone')}-{number}.parquet"
        paths.append(write_score_file(path, scores, dataset="photos", **named, **more))
    return paths


def test_difficulty_over_severity_joins_the_files_of_a_corruption(tmp_path: Path) -> None:
    values = [("fog:3", 4.0), (None, 0.0), ("fog:1", 2.0), ("glass_blur:1", -1.0)]
    paths = severities(tmp_path, values, backbone="builtin")

    drawn = severity_figures(read_sources(paths, "rmd"))

    (figure,) = figures_in(drawn).values()
    points = [(row["run"], row["severity"], row["mean"]) for row in figure.rows]
    assert points == [
        ("fog", 0, 1.5),
        ("fog", 1, 3.5),
        ("fog", 3, 5.5),
        ("glass blur", 0, 1.5),
        ("glass blur", 1, 0.5),
    ]
    spread = np.std(range(4), ddof=1) / 2
    assert figure.rows[0]["interval"] == pytest.approx(1.96 * spread)
    assert reasons_in(drawn) == []


def test_lines_of_severity_are_not_mixed_and_gaussians_of_corrupted_images_not_used(
    tmp_path: Path,
) -> None:
    own = {"fitted_on": {"dataset": "photos", "corruption": "fog:2"}}
    paths = [
        *severities(tmp_path, [("fog:1", 1.0), ("fog:1", 2.0)], backbone="one"),
        *severities(tmp_path, [("fog:1", 3.0)], backbone="two"),
        *severities(tmp_path, [("fog:2", 0.0)], backbone="three", **own),
    ]

    drawn = severity_figures(read_sources(paths, "rmd"))

    (figure,) = figures_in(drawn).values()
    assert [(row["run"], row["mean"]) for row in figure.rows] == [
        ("fog, one 1", 2.5),
        ("fog, two 2", 4.5),
    ]
    reasons = " ".join(reasons_in(drawn))
    assert f"{paths[1]} is of fog:1, as {paths[0]} is" in reasons
    assert f"{paths[3]} is scored by Gaussians of corrupted images" in reasons
    assert reasons.count("severity 0 is missing") == 2


@pytest.mark.slow
def test_a_sheet_shows_the_hardest_and_the_easiest_images(images: str, tmp_path: Path) -> None:
    ids = sorted(str(file.relative_to(images)) for file in Path(images).rglob("*.png"))
    scores = {sample_id: float(7 * number % 60) for number, sample_id in enumerate(ids)}
    scores[ids[5]] = np.nan
    path = write_score_file(tmp_path / "scores.parquet", scores, dataset=images)

    (figure,) = sheet_figures(read_sources([path], "rmd"))

    assert isinstance(figure, Figure)
    known = {each: score for each, score in scores.items() if np.isfinite(score)}
    hardest = sorted(known, key=lambda each: -known[each])
    shown = {
        group: [row["sample_id"] for row in figure.rows if row["group"] == group]
        for group in ("hardest", "easiest")
    }
    assert shown == {"hardest": hardest[:24], "easiest": hardest[::-1][:24]}
    figure.draw(tmp_path / "sheet.svg")
    assert (tmp_path / "sheet.svg").read_text().count("<image") == 48
    (few,) = sheet_figures(replace(read_sources([path], "rmd"), num_images=9))
    assert isinstance(few, Figure)
    assert [row["sample_id"] for row in few.rows] == [*hardest[:9], *hardest[::-1][:9]]
    few.draw(tmp_path / "few.svg")
    assert (tmp_path / "few.svg").read_text().count("<image") == 18


def test_dim_images_of_sixteen_bits_are_shown_as_they_were_scored(tmp_path: Path) -> None:
    (tmp_path / "dim").mkdir()
    for number in range(4):
        values = np.full((8, 8), 100 + 50 * number, np.uint16)
        Image.fromarray(values).save(tmp_path / "dim" / f"{number}.png")
    scores = {f"{number}.png": float(number) for number in range(4)}
    seen = {"pixel_range": [100.0, 250.0]}
    path = write_score_file(
        tmp_path / "scores.parquet", scores, dataset=str(tmp_path / "dim"), preprocessing=seen
    )

    (figure,) = sheet_figures(read_sources([path], "rmd"))

    assert isinstance(figure, Figure)
    figure.draw(tmp_path / "sheet.svg")
    encoded = re.findall(r"base64,([A-Za-z0-9+/=\s]+)\"", (tmp_path / "sheet.svg").read_text())
    shown = [Image.open(io.BytesIO(base64.b64decode(each))).convert("L") for each in encoded]
    assert sorted({round(np.asarray(each).mean()) for each in shown}) == [0, 85, 170, 255]


def test_a_sheet_shows_what_a_run_predicts_where_that_is_another_class(
    run: Path, tmp_path: Path
) -> None:
    saved = predictions_of(run, 0)
    folder = tmp_path / "images"
    names = read_sources([run], "rmd").runs[0].seeds[0].class_names
    predictions = [names[each] for each in saved.logits.argmax(1).tolist()]
    scores = {"test/unknown.png": 0.5}
    for number, sample_id in enumerate(saved.sample_ids[:4]):
        scores[sample_id] = float(number)
    for sample_id in scores:
        (folder / sample_id).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / sample_id)
    path = write_score_file(tmp_path / "scores.parquet", scores, dataset=str(folder))

    (figure,) = sheet_figures(read_sources([run, path], "rmd"))

    assert isinstance(figure, Figure)
    found = {str(row["sample_id"]): row["predicted"] for row in figure.rows}
    known = dict(zip(saved.sample_ids, predictions, strict=True))
    assert found == {each: known.get(each) for each in scores}
    assert "Where seed 0 of a $ b predicts another class" in figure.caption
    figure.draw(tmp_path / "sheet.svg")
    wrong = [row for row in figure.rows if row["predicted"] not in {None, row["label_name"]}]
    assert (tmp_path / "sheet.svg").read_text().count("<!-- → ") == len(wrong) > 0


def test_without_its_dataset_a_score_file_has_no_sheet(tmp_path: Path) -> None:
    path = write_score_file(tmp_path / "scores.parquet", {"a": 1.0}, dataset=str(tmp_path / "gone"))

    drawn = sheet_figures(read_sources([path], "rmd"))

    assert figures_in(drawn) == {}
    assert "gone" in reasons_in(drawn)[0]
