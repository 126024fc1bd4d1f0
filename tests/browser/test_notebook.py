"""The notebook of the documentation, and its widget in a browser: keys become marks in Python."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import difficulty_service as ds
from difficulty_service.interface.review_widget import show_review
from difficulty_service.scores.file import read_scores
from tests.browser.kinds import OpenPage

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Page

    from difficulty_service.interface.review_widget import ReviewWidget

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
WIDGETS = "application/vnd.jupyter.widget-state+json"

MOUNTING = """<!doctype html>
<meta charset="utf-8">
<link rel="icon" href="data:,">
<title>Notebook</title>
<div id="first"></div><div id="second"></div>
<script type="application/json" id="state">STATE</script>
<script type="module">
const values = JSON.parse(document.getElementById("state").textContent);
const followers = new Set();
window.model = {
  saved: [],
  get: (name) => values[name],
  set(name, value) {
    values[name] = value;
    for (const follow of [...followers]) follow();
  },
  save_changes() { this.saved.push(values.stored); },
  on: (_, follow) => followers.add(follow),
  off: (_, follow) => followers.delete(follow),
};
const source = new Blob([values._esm], { type: "text/javascript" });
const widget = (await import(URL.createObjectURL(source))).default;
const hide = {};
window.show = (id) => { hide[id] = widget.render({ model, el: document.getElementById(id) }); };
window.hide = (id) => { hide[id](); };
show("first");
</script>
"""
"""A page that shows a widget as notebooks do, with a model in place of the kernel."""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - nbformat ships no types
    """The notebook with what its cells show."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    opened = nbformat.read(NOTEBOOK, 4)
    folder = tmp_path_factory.mktemp("notebook")
    place = {"metadata": {"path": str(folder)}}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):  # not in the home of whoever tests
            patch.setenv(name, str(folder / name))
        nbclient.NotebookClient(
            opened, timeout=300, kernel_name="python3", resources=place
        ).execute()
    return opened


@pytest.fixture
def widget(scored: Path) -> "ReviewWidget":
    """The review of ninety pictures."""
    return show_review(read_scores(scored), None, "doubtful", None, 700)[0]


@pytest.fixture
def mount(open_page: OpenPage, tmp_path: Path) -> Callable[[dict[str, Any]], "Page"]:
    """Shows a widget of some state in a browser."""

    def open_state(state: dict[str, Any]) -> "Page":
        path = tmp_path / "notebook.html"
        text = json.dumps(state).replace("<", "\\u003c")
        path.write_text(MOUNTING.replace("STATE", text))
        page = open_page(path)
        frame_of(page).wait_for_selector(".look:enabled")
        return page

    return open_state


def frame_of(page: "Page", place: int = 0) -> "Frame":
    element = page.wait_for_selector(f":nth-match(iframe, {place + 1})")
    frame = element.content_frame()
    assert frame is not None
    return frame


def state_of(widget: Any) -> dict[str, Any]:  # noqa: ANN401 - of ipywidgets, which ships no types
    return {name: getattr(widget, name) for name in ("_esm", "page", "height", "stored")}


def mark(page: "Page", keys: str) -> list[str]:
    """Presses keys at the first picture; gives what the model has got."""
    frame_of(page).locator(".look").first.focus()
    before = page.evaluate("model.saved.length")
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_function(f"model.saved.length >= {before + len(keys)}")
    saved: list[str] = page.evaluate("model.saved")
    return saved


def test_the_notebook_runs_and_shows_plots_and_the_review(notebook: Any) -> None:  # noqa: ANN401
    shown = [
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        for kind in output["data"]
    ]

    assert shown.count("image/png") == 2
    assert "application/vnd.jupyter.widget-view+json" in shown


def test_a_key_in_the_notebook_becomes_a_mark(
    notebook: Any,  # noqa: ANN401
    mount: Callable[[dict[str, Any]], "Page"],
) -> None:
    models = notebook.metadata["widgets"][WIDGETS]["state"].values()
    state = next(each["state"] for each in models if "page" in each["state"])

    page = mount(state)
    saved = mark(page, "rdk")

    marks = dict(json.loads(saved[-1]))
    assert marks.keys() <= {"0", "1", "2", "3"}  # those with the label of another class
    assert [each["mark"] for each in marks.values()] == ["relabel", "drop", "keep"]


def test_marks_reach_python_as_a_table_that_score_takes(
    mount: Callable[[dict[str, Any]], "Page"],
    widget: Any,  # noqa: ANN401 - of ipywidgets, which ships no types
    scored: Path,
) -> None:
    seen = []
    widget.observe(lambda change: seen.append(len(change.new)), names="marks")
    page = mount(state_of(widget))

    for stored in mark(page, "rdk"):
        widget.stored = stored

    marks = widget.marks
    assert seen == [1, 2, 3]
    assert marks["mark"].tolist() == ["relabel", "drop", "keep"]
    table = read_scores(scored).table
    rows = {row["sample_id"]: row for row in table.to_pylist()}
    first = rows[marks["sample_id"][0]]
    assert marks["given_label"][0] == first["label_name"]
    assert marks["label"][0] == first["nearest_label_name"]
    assert marks["label_margin"][0] == pytest.approx(first["label_margin"], abs=1e-4)
    labels = table["label"].to_numpy()
    noise = np.random.default_rng(0).standard_normal((len(labels), 4))
    names = table["label_name"].to_pylist()
    again = ds.score(noise + 4 * np.eye(3, 4)[labels], names, ids=table["sample_id"], marks=marks)
    assert len(again) == len(labels) - 1
    changed = again[[marks["sample_id"][0]]]
    assert changed.label_name.tolist() == [first["nearest_label_name"]]


def test_another_view_and_python_show_the_same_marks(
    mount: Callable[[dict[str, Any]], "Page"], widget: "ReviewWidget"
) -> None:
    page = mount(state_of(widget))
    mark(page, "rd")

    page.evaluate("show('second')")
    other = frame_of(page, 1)
    other.wait_for_selector("[data-mark=drop]")
    page.evaluate("hide('first')")
    page.evaluate("model.set('stored', '[]')")

    other.wait_for_selector(".card:not([data-mark])")
    assert other.locator("[data-mark]").count() == 0
    assert frame_of(page).locator("[data-mark]").count() == 2  # of a view that is gone


def test_a_view_does_not_get_back_the_marks_that_it_made(
    mount: Callable[[dict[str, Any]], "Page"], widget: "ReviewWidget"
) -> None:
    page = mount(state_of(widget))
    frame = frame_of(page)
    frame.evaluate(
        "window.got = []; addEventListener('message', ({ data }) => got.push(data.value))"
    )

    mark(page, "rd")
    page.evaluate("model.set('stored', '[]')")  # as another view does
    frame.wait_for_function("got.includes('[]')")

    # An echo would undo what was marked while it was on its way.
    assert frame.evaluate("got") == ["[]"]


def test_the_frame_has_no_origin_and_keeps_its_policy(
    mount: Callable[[dict[str, Any]], "Page"], widget: "ReviewWidget"
) -> None:
    page = mount(state_of(widget))
    frame = frame_of(page)

    assert frame.evaluate("window.origin") == "null"
    policy = frame.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "does not keep" not in frame.locator("#tray-text").inner_text()
    mark(page, "k")
    assert "1 checked" in frame.locator("#tray-text").inner_text()
    assert "does not keep" not in frame.locator("#tray-text").inner_text()
