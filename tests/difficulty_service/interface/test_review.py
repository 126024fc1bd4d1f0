"""`Scores.review`: the page of a widget, and marks that come back from it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ipywidgets.embed import embed_minimal_html
from PIL import Image

import difficulty_service as ds
from difficulty_service.interface.scores import Scores
from tests.overlapping_classes import FEATURES, LABELS

COLUMNS = ["sample_id", "mark", "label", "given_label", "order", "label_margin"]


@pytest.mark.filterwarnings("ignore:there are no pictures")
def test_marks_are_a_table_that_is_observed(scores: Scores) -> None:
    widget: Any = scores.review()
    seen: list[pd.DataFrame] = []
    widget.observe(lambda change: seen.append(change.new), names="marks")
    assert widget.marks.columns.tolist() == COLUMNS
    assert len(ds.score(FEATURES, LABELS, marks=widget.marks)) == 300

    facts = {"given": "1", "margin": 1.5, "order": "doubtful"}
    marks = [
        ["7", {**facts, "mark": "relabel", "label": "2"}],
        ["10", {**facts, "mark": "drop", "label": ""}],
    ]
    widget.stored = json.dumps(marks)

    assert seen[-1] is widget.marks
    assert widget.marks.to_numpy().tolist() == [
        ["7", "relabel", "2", "1", "doubtful", 1.5],
        ["10", "drop", "", "1", "doubtful", 1.5],
    ]
    again = ds.score(FEATURES, LABELS, marks=widget.marks)
    assert len(again) == 299
    assert again[["7"]].label_name.tolist() == ["2"]


def test_the_page_has_the_samples_to_check_their_pictures_and_joined_columns(
    scores: Scores,
) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pairs = [(Image.fromarray(pixels + row % 200), "0") for row in range(300)]
    cameras = ["ab"[row % 2] for row in range(300)]
    joined = scores.join({"sample_id": scores.sample_id.tolist(), "camera": cameras})

    with pytest.warns(UserWarning, match="differs from the dataset that was scored"):
        widget: Any = joined.review(images=pairs, order="hardest", height=500)

    assert widget.page.count('class="card"') == 240
    assert widget.page.count('src="data:image/webp') > 240
    assert '"name":"camera","kind":"category"' in widget.page
    assert "default-src &#39;none&#39;; img-src data:;" in widget.page
    assert 'href="#' not in widget.page  # which would leave the frame
    assert widget.height == 500


@pytest.mark.filterwarnings("ignore:there are no pictures")
def test_a_saved_page_of_widgets_has_the_code_of_the_widget(scores: Scores, tmp_path: Path) -> None:
    widget: Any = scores.review()

    embed_minimal_html(tmp_path / "page.html", [widget])

    page = (tmp_path / "page.html").read_text()
    found = re.search(
        r'type="application/vnd.jupyter.widget-state\+json">(.*?)</script>', page, re.DOTALL
    )
    assert found
    state = json.loads(found[1])["state"][widget.model_id]["state"]
    assert "export default" in state["_esm"]
    assert state["_anywidget_id"]
    assert state["page"] == widget.page


def test_without_images_a_warning_says_how_to_bring_them(scores: Scores) -> None:
    with pytest.warns(UserWarning, match="there are no pictures.*in Python images=DATASET"):
        scores.review()


def test_a_page_that_nothing_fits_into_is_refused(scores: Scores) -> None:
    with pytest.raises(ds.errors.ReportError, match="a report of 0 MB would hold nothing"):
        scores.review(max_mb=0)
