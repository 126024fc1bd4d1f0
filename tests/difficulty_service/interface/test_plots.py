"""`Scores.plot`: what the report shows, as Matplotlib draws it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib import colors, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import difficulty_service as ds
from difficulty_service.interface.scores import Scores
from difficulty_service.pages.html_page import decimals, report_colours
from difficulty_service.scores.file import ScoreFile
from tests.overlapping_classes import FEATURES, LABELS

NAMES = ["$a", "b$", "<c>"]


@pytest.fixture(scope="module")
def doubtful() -> Scores:
    """Scores of three classes with six labels of another class; a `$` begins no formula."""
    given = LABELS.copy()
    given[::50] = (given[::50] + 1) % 3
    apart = FEATURES + 3 * np.eye(3, FEATURES.shape[1], dtype=np.float32)[LABELS]
    return ds.score(apart, [NAMES[label] for label in given])


@pytest.fixture
def axes() -> Axes:
    made: Axes = Figure().subplots()
    return made


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    pyplot.close("all")


def texts(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_the_histogram_counts_every_sample_in_the_colour_of_its_tier(doubtful: Scores) -> None:
    axes = doubtful.plot()

    axes.figure.canvas.draw()  # type: ignore[union-attr] # of a figure within a figure
    counts: Counter[str] = Counter()
    for bar in axes.patches:
        counts[colors.to_hex(bar.get_facecolor())] += bar.get_height()  # type: ignore[attr-defined]
    wrong = int((doubtful.suspicion > 0).sum())
    assert wrong >= 6
    assert counts[colors.to_hex(report_colours()["hard"])] == wrong
    assert sum(counts.values()) == 300
    legend = axes.get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    assert f"probably wrong: {wrong}" in shown
    assert f"median {decimals(np.median(doubtful.rmd))}" in shown


def test_classes_are_drawn_from_the_hardest_down(doubtful: Scores, axes: Axes) -> None:
    assert doubtful.plot("classes", ax=axes) is axes

    means = {name: doubtful.rmd[doubtful.label_name == name].mean() for name in NAMES}
    ranked = sorted(means, key=lambda name: -means[name])
    assert texts(axes) == [f"{name} ({(doubtful.label_name == name).sum()})" for name in ranked]
    assert [line.get_xdata()[0] for line in axes.lines] == pytest.approx(  # type: ignore[index]
        [means[name] for name in ranked]
    )
    with pytest.warns(UserWarning, match="2 of 3 classes are drawn; n=3 draws all"):
        doubtful.plot("classes", n=2)


def test_pairs_count_which_class_is_taken_for_which(doubtful: Scores, axes: Axes) -> None:
    doubtful.plot("pairs", ax=axes)

    wrong = doubtful[doubtful.suspicion > 0]
    pairs = Counter(zip(wrong.label_name, wrong.suggested_label_name, strict=True))
    shown = {
        text: bar.get_width()  # type: ignore[attr-defined]
        for text, bar in zip(texts(axes), axes.patches, strict=True)
    }
    assert shown == {f"{given} → {other}": count for (given, other), count in pairs.items()}
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())


def test_a_sheet_shows_the_samples_to_check(doubtful: Scores, axes: Axes) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 20, 30, 3), dtype=np.uint8)
    pairs = [(Image.fromarray(each), str(row)) for row, each in enumerate(pixels)]

    with pytest.warns(UserWarning, match="differs from the dataset that was scored"):
        doubtful.plot("sheet", ax=axes, images=pairs, n=5)
    drawn = [text.get_text() for text in axes.texts]

    assert len(axes.images) == 5
    assert not any(text.get_parse_math() for text in axes.texts)
    assert axes.images[0].get_array().shape == (20, 30, 3)  # type: ignore[union-attr]
    names = doubtful.doubtful(5)
    assert drawn[::2] == names["label_name"].to_pylist()
    assert drawn[1::2] == [f"→ {name}" for name in names["suggested_label_name"].to_pylist()]
    axes.figure.canvas.draw()  # type: ignore[union-attr]
    with pytest.raises(ds.errors.ReportError, match=r"a sheet needs the images.*images"):
        doubtful.plot("sheet")


def test_a_sheet_without_doubtful_labels_shows_the_hardest(scores: Scores, axes: Axes) -> None:
    verified = scores[scores.label_margin <= 0]
    pairs = [(Image.fromarray(np.zeros((8, 8, 3), np.uint8)), "0")] * 300
    shown = "no label is doubtful: the sheet shows the hardest samples"

    with pytest.warns(UserWarning, match="differs from"), pytest.warns(UserWarning, match=shown):
        verified.plot("sheet", ax=axes, images=pairs, n=3)

    assert len(axes.images) == 3


def test_without_classes_the_distances_are_drawn_and_no_classes(scores: Scores) -> None:
    kept = ["sample_id", "label", "label_name", "md_agnostic", "percentile"]
    alone = Scores(ScoreFile(scores.table.select(kept), scores.provenance))

    axes = alone.plot()

    assert axes.get_xlabel() == "distance (md_agnostic); larger is harder"
    for kind in ("classes", "pairs"):
        with pytest.raises(ds.errors.ReportError, match="compares classes, and the samples have"):
            alone.plot(kind)
    assert len(pyplot.get_fignums()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "hist"}, "no plot 'hist'; did you mean 'histogram'"),
        ({"n": 3}, "'histogram' has no option n"),
        ({"kind": "pairs", "order": "random"}, "'pairs' has no option order"),
        ({"kind": "pairs", "n": 0}, "0 entries are nothing to draw"),
    ],
)
def test_an_option_without_effect_is_refused(
    scores: Scores, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ds.errors.ConfigError, match=message):
        scores.plot(**arguments)


def test_every_colour_of_the_plots_is_one_of_the_report() -> None:
    assert {"hard", "bar", "line", "shade-5", "ink", "soft", "panel", "faint", "hard-ink"} <= (
        report_colours().keys()
    )
    assert all(colors.is_color_like(each) for each in report_colours().values())
