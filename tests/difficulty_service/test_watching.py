"""A watched dataset is scored when it has changed, and only then; what is new is said."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from cyclopts import CycloptsError
from prometheus_client.parser import text_string_to_metric_families

import difficulty_service as ds
from difficulty_service.base.errors import DatasetError
from difficulty_service.cli import create_app
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.command_options import WatchOptions
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.options import ScoringOptions
from difficulty_service.pipeline import ExtractRequest, ScoreRequest
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.watching import (
    GAUGES,
    LISTINGS,
    FailedRound,
    Round,
    added_since,
    gauges_of,
    watch,
    write_gauges,
)
from docs.watching import PAGE, page
from tests import small_network
from tests.factories import png_of, write_image_folder
from tests.small_network import SMALL

DASHBOARD = PAGE.parent / "watching/grafana.json"


@pytest.fixture(scope="module", autouse=True)
def _small() -> None:
    small_network.make_known()


class Waits:
    """What happens while a watch waits, one thing in each wait; then the watch ends."""

    def __init__(self, *happenings: object) -> None:
        self.seconds: list[float] = []
        self.left = list(happenings)

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if not self.left:
            raise KeyboardInterrupt
        happening = self.left.pop(0)
        if callable(happening):
            happening()


def rounds_of(folder: Path, waits: Waits, **options: object) -> Iterator[Round | FailedRound]:
    """Rounds of a watch of `photos` in a folder, until it is interrupted."""
    extraction = ExtractRequest(str(folder / "photos"), folder / "scores.features", SMALL)
    scoring = ScoreRequest(folder / "scores.parquet", ScoringOptions())
    pace = WatchOptions.model_validate({"every": 60, "settle": 5, **options})
    try:
        yield from watch(extraction, scoring, pace, wait=waits)
    except KeyboardInterrupt:
        return


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of two classes with eight images each."""
    return write_image_folder(tmp_path / "photos", ("cat", "dog"), each=8, size=(12, 12))


def put(folder: Path, name: str, colour: str = "red") -> None:
    """Adds an image to a class folder."""
    (folder / name).write_bytes(png_of(colour))


def test_a_dataset_is_scored_again_when_it_has_changed_and_only_then(
    photos: Path, tmp_path: Path
) -> None:
    waits = Waits(None, None, lambda: put(photos, "cat/new.png"), None, None)

    first, second = rounds_of(tmp_path, waits)

    assert isinstance(first, Round)
    assert isinstance(second, Round)
    assert (len(first.added.samples.table), first.added.unlike) == (16, None)
    assert second.added.samples.table["sample_id"].to_pylist() == ["cat/new.png"]
    reuse = second.scored.extracted.reuse
    assert reuse is not None
    assert reuse.num_new == 1
    assert read_scores(tmp_path / "scores.parquet").table.num_rows == 17
    assert waits.seconds == [60, 60, 60, 5, 60, 60]


def test_a_dataset_that_is_still_being_copied_is_scored_when_it_is_complete(
    photos: Path, tmp_path: Path
) -> None:
    names = iter(f"dog/{number}-more.png" for number in range(3))
    waits = Waits(*(lambda: put(photos, next(names)) for _ in range(3)), None)

    _, second = rounds_of(tmp_path, waits, rounds=2)

    assert isinstance(second, Round)
    assert len(second.added.samples.table) == 3
    assert waits.seconds == [60, 5, 5, 5]


def test_one_that_changes_all_the_time_is_scored_nevertheless(photos: Path, tmp_path: Path) -> None:
    names = (f"dog/{number}-more.png" for number in range(100))
    waits = Waits(*(lambda: put(photos, next(names)) for _ in range(LISTINGS + 1)))

    *_, last = rounds_of(tmp_path, waits, rounds=2)

    assert isinstance(last, Round)
    assert len(last.added.samples.table) == LISTINGS + 1


def test_samples_that_left_are_counted(photos: Path, tmp_path: Path) -> None:
    waits = Waits((photos / "cat/0.png").unlink, None)

    _, second = rounds_of(tmp_path, waits, rounds=2)

    assert isinstance(second, Round)
    assert (len(second.added.samples.table), second.added.num_removed) == (0, 1)


@pytest.mark.usefixtures("photos")
def test_a_decision_begins_a_round_and_counts(tmp_path: Path) -> None:
    def decide() -> None:
        drop = {"cat/0.png": MarkedSample("cat/0.png", Mark.DROP, given_label="cat")}
        ReviewFolder(tmp_path / "scores.parquet").remember(drop.values())

    _, second = rounds_of(tmp_path, Waits(decide, None), rounds=2)

    assert isinstance(second, Round)
    assert (
        "cat/0.png" not in read_scores(tmp_path / "scores.parquet").table["sample_id"].to_pylist()
    )


def test_a_dataset_that_cannot_be_read_for_a_while_is_tried_again(
    photos: Path, tmp_path: Path
) -> None:
    away = tmp_path / "away"

    def back() -> None:
        away.rename(photos)
        put(photos, "cat/new.png")

    waits = Waits(lambda: photos.rename(away), None, back, None)

    happened = list(rounds_of(tmp_path, waits, rounds=2))

    kinds = [type(each) for each in happened]
    assert kinds == [Round, FailedRound, FailedRound, Round]
    assert [each.number for each in happened] == [1, 1, 2, 2]
    assert isinstance(happened[1], FailedRound)
    assert "photos" in str(happened[1].error)


def test_the_first_round_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="photos"):
        next(rounds_of(tmp_path, Waits()))


def scores(ids: Sequence[str], distances: Sequence[float]) -> ScoreFile:
    """Scores with a distance from all samples."""
    return ScoreFile(pa.table({"sample_id": ids, "md_agnostic": distances}), Provenance())


def test_what_is_unlike_lies_beyond_a_twentieth_of_what_was_there() -> None:
    old = [f"{number}" for number in range(100)]
    table = scores([*old, "a", "b", "c", "d"], [*range(100), 94.0, 94.06, 200.0, 3.0])

    added = added_since(pa.array([*old, "gone"]), table)

    assert (len(added.samples.table), added.num_removed) == (4, 1)
    assert added.unlike == 0.5
    assert added.wrong is None
    assert added_since(None, table).unlike is None
    assert added_since(pa.array([*old, "a", "b", "c", "d"]), table).unlike is None


def test_the_surest_wrong_labels_of_what_is_new_come_first() -> None:
    table = pa.table({"sample_id": ["a", "b", "c", "d"], "p_wrong": [0.6, None, 0.9, 0.4]})

    wrong = added_since(pa.array([], pa.string()), ScoreFile(table, Provenance())).wrong

    assert wrong is not None
    assert wrong["sample_id"].to_pylist() == ["c", "a"]


def test_metrics_are_those_of_the_page_and_the_dashboard(photos: Path, tmp_path: Path) -> None:
    (photos / "dog/damaged.png").write_bytes(b"no image")
    (done,) = rounds_of(tmp_path, Waits(), rounds=1)
    assert isinstance(done, Round)

    values = gauges_of(done, 3, ended=1e9)
    write_gauges(tmp_path / "watch.prom", values, 'a "dataset"')

    families = list(text_string_to_metric_families((tmp_path / "watch.prom").read_text()))
    read = {family.name: family.samples[0] for family in families}
    assert read["difficulty_watch_samples"].value == 16
    assert read["difficulty_watch_unreadable"].value == 1
    assert read["difficulty_watch_failures"].value == 3
    assert read["difficulty_watch_samples"].labels == {"dataset": 'a "dataset"'}
    assert read.keys() == {f"difficulty_watch_{name}" for name in GAUGES if name != "added_unlike"}
    assert PAGE.read_text() == page(), "run: python docs/watching.py"
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    assert {name for name in GAUGES if f"difficulty_watch_{name}{{" in shown} == GAUGES.keys() - {
        "rounds"
    }


def test_rounds_come_one_by_one_in_python(photos: Path, tmp_path: Path) -> None:
    options = {"backbone": SMALL, "every": 0.01, "settle": 0.0, "rounds": 2}

    found = []
    for each in ds.watch(photos, out=tmp_path / "scores.parquet", **options):
        assert isinstance(each, Round)
        found.append(len(each.added.samples.table))
        put(photos, "cat/new.png")

    assert found == [16, 1]
    with pytest.raises(ds.errors.ConfigError, match="every"):
        next(ds.watch(photos, out=tmp_path / "scores.parquet", every=0))
    with pytest.raises(ds.errors.ConfigError, match="not tags"):
        next(ds.watch(photos, out=tmp_path / "scores.parquet", backbone=SMALL, tags="tags"))
    with pytest.raises(TypeError, match="evry"):
        next(ds.watch(photos, out=tmp_path / "scores.parquet", evry=1))  # type: ignore[call-arg]


def test_the_command_prints_a_line_for_each_round_and_writes_what_is_new(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, added, metrics = (tmp_path / name for name in ("s.parquet", "new.parquet", "watch.prom"))
    words = ["watch", str(photos), "--out", str(out), "--backbone", SMALL, "--rounds", "1"]
    files = ["--added", str(added), "--metrics", str(metrics)]

    create_app()([*words, *files])
    (photos / "dog/damaged.png").write_bytes(b"no image")
    put(photos, "cat/new.png")
    said = capsys.readouterr().out
    create_app()([*words, *files, "--json"])
    create_app()([*words, *files, "--json"])  # adds nothing, and leaves the file of what is new

    assert "round 1: 16 images new; 16 scores in" in " ".join(said.split())
    printed, again = map(json.loads, capsys.readouterr().out.splitlines())
    assert again["added"] == 0
    assert (printed["round"], printed["added"], printed["scores"]["skipped"]) == (1, 1, 1)
    assert read_scores(added).table["sample_id"].to_pylist() == ["cat/new.png"]
    assert "difficulty_watch_added{" in metrics.read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--metrics", "watch.txt"], "ends in .prom"),
        (["--metrics", "nowhere/watch.prom"], "in the folder"),
        (["--added", "s.parquet"], "of --out, too"),
        (["--every", "0"], "every"),
        (["--rounds", "0"], "rounds"),
    ],
)
@pytest.mark.usefixtures("photos")
def test_a_watch_that_cannot_work_is_refused_before_it_begins(
    options: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((WrongCall, CycloptsError), match=problem):
        create_app()(["watch", "photos", "--out", "s.parquet", *options])
    assert not (tmp_path / "s.parquet").exists()
