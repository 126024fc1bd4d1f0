"""The folder of figures: pictures, numbers, and the page that lists them."""

import csv
from pathlib import Path

import pytest

from difficulty_service.base.errors import ScoreFileError, TrainingError
from tests.factories import write_score_file
from trainer.reports.figures.figure import LeftOutOfFigure, lines_of
from trainer.reports.figures.predictions import NAMES, UNFINISHED
from trainer.reports.figures.sources import read_sources
from trainer.reports.figures.writing import write_figures


@pytest.mark.slow
def test_the_page_lists_every_figure_with_its_numbers_and_what_is_left_out(
    run: Path, plain: Path, tmp_path: Path
) -> None:
    written = write_figures(read_sources([run, plain], "rmd"), tmp_path / "new" / "out", "svg")

    page = written.index.read_text()
    for each in written.figures:
        assert f"![{each.name}]({each.name}.svg)" in page
        assert each.caption in page
        with (written.index.parent / f"{each.name}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(each.rows)
        assert (written.index.parent / f"{each.name}.svg").stat().st_size > 1000
    reasons = page.partition("## Left out\n\n")[2].splitlines()
    assert f"- {', '.join(NAMES)}, gradients-of-samples: {UNFINISHED} (tiny: seed 0)." in reasons
    assert "- hardest-and-easiest: no score file of images without corruption is given." in reasons


def test_one_reason_of_several_figures_and_seeds_is_one_line() -> None:
    parts = [
        LeftOutOfFigure(name, "no curve", "draw it", run, seed)
        for run, seed in (("a", 0), ("a", 1), ("b", None))
        for name in ("roc", "roc-by-entropy")
    ]

    lines = lines_of([*parts, LeftOutOfFigure("risk", "no curve"), LeftOutOfFigure("risk", "rest")])

    assert lines == [
        "roc, roc-by-entropy: no curve (a: seeds 0, 1; b); draw it",
        "risk: no curve",
        "risk: rest",
    ]


def test_nothing_to_draw_is_an_error_that_says_why(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"no figure can be drawn: reliability, .*tiny: seed 0"):
        write_figures(read_sources([plain], "rmd"), tmp_path / "out", "svg")

    assert not (tmp_path / "out").exists()


def test_inputs_that_cannot_be_drawn_are_refused(run: Path, tmp_path: Path) -> None:
    scores = write_score_file(tmp_path / "scores.parquet", {"a": 1.0})

    with pytest.raises(TrainingError, match=r"2 runs and score files to draw; give .* each once"):
        read_sources([run, run], "rmd")
    with pytest.raises(TrainingError, match="holds no run"):
        read_sources([tmp_path], "rmd")
    with pytest.raises(ScoreFileError, match=r"has no md; score with scorers='rmd'") as caught:
        read_sources([scores], "md")
    assert caught.value.parameter == "score_column"
    with pytest.raises(ScoreFileError, match=r"holds .*, not scores"):
        read_sources([scores], "label_name")
