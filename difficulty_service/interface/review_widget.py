"""The samples to check as a widget of notebooks, whose marks are a DataFrame.

The widget shows a page of the report in a frame without an origin and without network, so that
neither names of files and classes nor pictures of a dataset can reach the notebook around it. The
frame tells the widget its marks and nothing else.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from difficulty_service.base.extras import needs_extra
from difficulty_service.interface.image_sources import LabelledImages, images_of
from difficulty_service.pages.html_page import PACKAGE
from difficulty_service.reports.assemble import ReportOptions, make_review
from difficulty_service.reports.sample_columns import SampleColumns, to_sample_column
from difficulty_service.reports.sections import Order
from difficulty_service.reports.writing import DEFAULT_MAX_MB
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.score_columns import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

MARK_FIELDS = {
    "sample_id": None,
    "mark": "mark",
    "label": "label",
    "given_label": "given",
    "order": "order",
    "label_margin": "margin",
}
"""Columns of marks, as in the file that a report downloads, and what the page calls them."""


class ReviewWidget(Protocol):
    """A widget that shows samples to check and holds the decisions about them.

    It is an `anywidget.AnyWidget`, which notebooks show, and boxes of ipywidgets hold.
    """

    @property
    def marks(self) -> "pd.DataFrame":
        """The decisions: columns sample_id, mark, label, given_label, order and label_margin."""

    def observe(self, handler: Callable[[Any], None], names: str = ...) -> None:
        """Calls a function at every decision, with `names="marks"`; `change.new` has the marks."""


@needs_extra("Scores.review", "notebook")
def show_review(
    scores: ScoreFile,
    images: LabelledImages | None,
    order: Order,
    max_mb: float | None,
    height: int,
) -> tuple[ReviewWidget, Sequence[str]]:
    """A widget of the samples to check, and sentences about what it does not show.

    The arguments are those of `Scores.review`.
    """
    make_widget = _widget_class()
    columns, not_shown = _columns_beside(scores)
    reported = ReportOptions(
        images=images_of(images),
        order=order,
        max_mb=DEFAULT_MAX_MB if max_mb is None else max_mb,
    )
    page = make_review(scores, reported, columns)
    widget = make_widget(page=page.html.decode(), height=height)
    return widget, (*not_shown, *page.warnings)


def _columns_beside(scores: ScoreFile) -> tuple[SampleColumns, list[str]]:
    """Joined columns to filter by, and those that cannot be shown with their reasons."""
    columns, not_shown = {}, []
    for name in scores.table.column_names:
        if name in COLUMNS:
            continue
        column = to_sample_column(name, scores.table[name])
        if isinstance(column, str):
            not_shown.append(f"the column {name} is not shown: {column}")
        else:
            columns[name] = column
    return columns, not_shown


@cache
def _widget_class() -> Callable[..., ReviewWidget]:
    import anywidget
    import pandas as pd
    import traitlets

    def to_frame(stored: str) -> pd.DataFrame:
        marks = dict(json.loads(stored))
        values = {
            column: list(marks) if field is None else [mark.get(field) for mark in marks.values()]
            for column, field in MARK_FIELDS.items()
        }
        return pd.DataFrame(values)

    class Widget(anywidget.AnyWidget):
        _esm = files(PACKAGE).joinpath("static", "review_widget.js").read_text("utf-8")
        page = traitlets.Unicode().tag(sync=True)
        height = traitlets.Int().tag(sync=True)
        stored = traitlets.Unicode("[]").tag(sync=True)
        marks = traitlets.Any()

        @traitlets.default("marks")
        def _no_marks(self) -> pd.DataFrame:
            return to_frame("[]")

        @traitlets.observe("stored")
        def _read_marks(self, change: dict[str, Any]) -> None:
            self.marks = to_frame(change["new"])

        def get_state(
            self,
            key: Any = None,  # noqa: ANN401 - of ipywidgets
            drop_defaults: bool = False,  # noqa: FBT001, FBT002, ARG002 - of ipywidgets
        ) -> Any:  # noqa: ANN401 - of ipywidgets
            # The code of the widget counts as a default, without which a saved page is empty.
            return super().get_state(key, drop_defaults=False)

    return Widget
