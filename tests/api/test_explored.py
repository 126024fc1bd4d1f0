"""Rounds of review in the explorer: score again, go back, and no decision is lost."""

import re
from pathlib import Path
from typing import Self

import pytest
import torch
from fastapi.testclient import TestClient

from api.app import create_app
from api.explore import explorer_settings
from api.explored import ExploredFile, Rounds, add_round, recorded_scoring, why_not_again
from difficulty_service.features.store import open_store
from difficulty_service.marks.files import read_marks, write_marks
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, MarkHistory, Marks
from difficulty_service.marks.review_folder import Review, ReviewFolder
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.samples import to_samples
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions
from tests.factories import store_of

NUM = 60
MOVED = {f"s{row}": (row + 1) % 3 for row in range(4)}  # samples with the label of another class
NAMES = ("cat", "dog", "owl")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of three classes with four wrong labels, and the scores of the first round."""
    folder = tmp_path_factory.mktemp("first")
    truth = torch.arange(NUM) % 3
    noise = torch.randn(NUM, 4, generator=torch.Generator().manual_seed(0))
    labels = truth.clone()
    for sample_id, label in MOVED.items():
        labels[int(sample_id[1:])] = label
    store_of(folder / "scores.features", noise + 6 * torch.eye(4)[truth], labels)
    options = ScoringOptions(scorers=("suspicion",))
    features = open_store(folder / "scores.features")
    score_features(features, ScoreRequest(folder / "scores.parquet", options))
    return folder


@pytest.fixture
def scores(first: Path, tmp_path: Path) -> Path:
    (tmp_path / "scores.features").symlink_to(first / "scores.features")
    (tmp_path / "scores.parquet").write_bytes((first / "scores.parquet").read_bytes())
    return tmp_path / "scores.parquet"


class Explorer:
    """The explorer of a score file, while it runs."""

    def __init__(self, scores: Path, features: Path | None) -> None:
        content = read_scores(scores)
        settings = explorer_settings(scores, "photos", 0)
        settings.data_dir.mkdir(exist_ok=True)
        file = ExploredFile(scores, "photos", settings, features)
        self.job = add_round(file, content).id
        self.rounds = Rounds(file, self.job, why_not_again(content.provenance, features))
        self.client = TestClient(create_app(settings, self.rounds), base_url="http://localhost")

    def __enter__(self) -> Self:
        self.client.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.client.__exit__(*error)

    def mark(self, job: str, **marks: tuple[str, str | None] | None) -> None:
        changes = [
            {"sample_id": each, "decision": wanted and {"mark": wanted[0], "label": wanted[1]}}
            for each, wanted in marks.items()
        ]
        self.client.post(f"/v1/jobs/{job}/marks", json={"marks": changes}).raise_for_status()

    def marks(self, job: str) -> dict[str, tuple[str, str | None]]:
        listed = self.client.get(f"/v1/jobs/{job}/marks").json()["marks"]
        return {each["sample_id"]: (each["mark"], each["label"]) for each in listed}

    def post(self, job: str, action: str) -> str:
        answer = self.client.post(
            f"/jobs/{job}/{action}", data={"token": "t"}, follow_redirects=False
        )
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"]).removeprefix("/jobs/")


def explorer_of(scores: Path) -> Explorer:
    return Explorer(scores, scores.with_suffix(".features"))


def remembered(scores: Path) -> dict[str, tuple[str, str | None]]:
    marks = read_marks(ReviewFolder(scores).file, ()).samples
    return {sample_id: (mark.mark.value, mark.label) for sample_id, mark in marks.items()}


RIGHT: dict[str, tuple[str, str | None]] = {
    "s0": ("relabel", "cat"),
    "s1": ("drop", None),
    "s10": ("keep", None),
}


@pytest.mark.slow
def test_scoring_again_replaces_the_scores_by_those_that_know_the_decisions(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        following = explorer.post(explorer.job, "score-again")
        page = explorer.client.get(f"/jobs/{following}").text

    content = read_scores(scores)
    rows = {row["sample_id"]: row for row in content.table.to_pylist()}
    assert content.provenance.round == 2
    assert "Round 2: 1 relabelled, 1 dropped, 1 kept" in page
    assert rows["s0"]["label_name"] == "cat"
    assert rows["s10"]["p_wrong"] == 0
    assert "s1" not in rows
    assert remembered(scores) == RIGHT


@pytest.mark.slow
def test_the_first_page_is_the_dataset_until_there_are_rounds_to_choose_from(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        alone = explorer.client.get("/", follow_redirects=False)
        explorer.mark(explorer.job, **RIGHT)
        explorer.post(explorer.job, "score-again")
        listed = explorer.client.get("/").text

    assert alone.headers["location"] == f"/jobs/{explorer.job}"
    assert "Rounds of review</h1>" in listed
    assert ">Round 2</a>" in listed
    assert ">Round 1</a>" in listed


@pytest.mark.slow
def test_a_round_is_scored_as_the_command_scores_it(scores: Path, tmp_path: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        explorer.post(explorer.job, "score-again")

    marks = Marks.of(MarkedSample(key, Mark(mark), label) for key, (mark, label) in RIGHT.items())
    request = ScoreRequest(
        tmp_path / "command.parquet",
        ScoringOptions(scorers=("suspicion",)),
        review=Review(MarkHistory(later=marks)),
    )
    score_features(open_store(scores.with_suffix(".features")), request)
    assert read_scores(scores).table.equals(read_scores(tmp_path / "command.parquet").table)


@pytest.mark.slow
def test_one_goes_back_to_a_round_and_forward_again_with_the_marks_of_each(scores: Path) -> None:
    before = read_scores(scores)
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        second = explorer.post(explorer.job, "score-again")
        explorer.mark(second, s2=("relabel", "owl"))
        both = read_scores(scores)
        explorer.post(explorer.job, "go-to")
        back, marks_back = read_scores(scores), remembered(scores)
        notice = explorer.client.get(f"/jobs/{second}").text
        explorer.post(second, "go-to")
        marks_forward = remembered(scores)

    assert back.table.equals(before.table)
    assert back.provenance == before.provenance
    assert marks_back == RIGHT
    assert "scores.parquet holds another round of scores" in notice
    assert read_scores(scores).table.equals(both.table)
    assert marks_forward == RIGHT | {"s2": ("relabel", "owl")}


@pytest.mark.slow
def test_scoring_an_earlier_round_again_starts_from_it(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, s0=("relabel", "cat"))
        second = explorer.post(explorer.job, "score-again")
        explorer.mark(second, s2=("drop", None))
        explorer.mark(explorer.job, s3=("relabel", "cat"))
        other = explorer.post(explorer.job, "score-again")

    assert other != second
    assert read_scores(scores).provenance.round == 2
    assert remembered(scores) == {"s0": ("relabel", "cat"), "s3": ("relabel", "cat")}


def test_marks_are_beside_the_scores_when_the_explorer_ends(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)

    assert remembered(scores) == RIGHT
    with explorer.client:
        explorer.mark(explorer.job, s0=None, s1=None, s10=None)
    assert not ReviewFolder(scores).file.exists()


def test_marks_of_earlier_rounds_stay_beside_those_of_this_one(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        second = explorer.post(explorer.job, "score-again")
        explorer.mark(second, s2=("relabel", "owl"))

    rounds = {
        key: mark.round for key, mark in read_marks(ReviewFolder(scores).file, ()).samples.items()
    }
    assert rounds == {"s0": 1, "s1": 1, "s10": 1, "s2": 2}


def test_what_a_person_changes_in_the_file_of_marks_counts_when_it_is_opened_again(
    scores: Path,
) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
    marks = dict(read_marks(ReviewFolder(scores).file, ()).samples)
    del marks["s1"]
    marks["s0"] = MarkedSample("s0", Mark.KEEP)
    marks["s20"] = MarkedSample("s20", Mark.DROP)
    write_marks(ReviewFolder(scores).file, marks.values())

    with explorer_of(scores) as again:
        shown = again.marks(again.job)

    expected = {"s0": ("keep", None), "s10": ("keep", None), "s20": ("drop", None)}
    assert shown == expected
    assert remembered(scores) == expected


def test_decisions_that_are_lost_from_the_file_of_marks_are_kept_as_undone(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
    before = remembered(scores)
    lines = ReviewFolder(scores).file.read_text().splitlines(keepends=True)
    ReviewFolder(scores).file.write_text("".join(lines[:2]))

    with explorer_of(scores) as again:
        left = again.marks(again.job)

    undone = read_marks(scores.with_suffix(".marks.undone.csv"), ())
    lost = {key: (mark.mark.value, mark.label) for key, mark in undone.samples.items()}
    assert len(left) == 1
    assert left | lost == before


def test_a_mark_survives_an_explorer_that_was_killed_before_it_was_written(scores: Path) -> None:
    explorer = explorer_of(scores)
    # A server without rounds stores marks and never writes the file, as one that is killed.
    killed = TestClient(create_app(explorer.rounds.explored.settings), base_url="http://localhost")
    explorer.client = killed
    with killed:
        explorer.mark(explorer.job, **RIGHT)
    assert not ReviewFolder(scores).file.exists()

    with explorer_of(scores) as again:
        shown = again.marks(again.job)

    assert shown == RIGHT
    assert remembered(scores) == RIGHT


def test_scores_that_another_program_has_written_meanwhile_are_left_alone(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        scores.write_bytes(scores.read_bytes() + b" ")
        answer = explorer.client.post(f"/jobs/{explorer.job}/score-again", data={"token": "t"})

    assert answer.status_code == 409
    assert "another program has written scores.parquet" in answer.text
    assert not ReviewFolder(scores).file.exists()


def test_without_marks_there_is_nothing_to_score_again(scores: Path) -> None:
    with explorer_of(scores) as explorer:
        answer = explorer.client.post(f"/jobs/{explorer.job}/score-again", data={"token": "t"})

    assert answer.status_code == 422
    assert "no image is marked" in answer.text


def test_marks_that_drop_everything_are_explained_and_change_nothing(scores: Path) -> None:
    before = scores.read_bytes()
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **{f"s{row}": ("drop", None) for row in range(NUM)})
        answer = explorer.client.post(f"/jobs/{explorer.job}/score-again", data={"token": "t"})

    assert answer.status_code == 409
    assert "the marks drop every sample" in answer.text
    assert scores.read_bytes() == before


@pytest.mark.slow
def test_without_features_marking_goes_on_but_scoring_again_is_not_offered(scores: Path) -> None:
    with Explorer(scores, None) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        tray = explorer.client.get(f"/jobs/{explorer.job}/tray").text
        answer = explorer.client.post(f"/jobs/{explorer.job}/score-again", data={"token": "t"})

    assert "3 checked" in tray
    assert "Score again" not in tray
    assert answer.status_code == 409
    assert "the features are not beside the score file" in answer.text


def test_the_options_of_a_round_are_those_of_the_one_before(scores: Path, tmp_path: Path) -> None:
    features = open_store(scores.with_suffix(".features"))
    wanted = ScoringOptions(
        scorers=("suspicion", "knn"), shrinkage=0.25, near_duplicates=0.97, matmul_dtype="float64"
    )
    score_features(features, ScoreRequest(tmp_path / "other.parquet", wanted))

    known = recorded_scoring(read_scores(tmp_path / "other.parquet"))

    assert set(known.scorers) == {"rmd", "suspicion", "knn"}
    assert known.model_dump(exclude={"scorers"}) == wanted.model_dump(exclude={"scorers"})


def label_counts(scores: Path) -> LabelCounts:
    counts = to_samples(read_scores(scores)).label_counts
    assert counts is not None
    return counts


def test_the_page_of_a_round_compares_it_with_the_one_before(scores: Path) -> None:
    before = label_counts(scores)
    with explorer_of(scores) as explorer:
        explorer.mark(explorer.job, **RIGHT)
        second = explorer.post(explorer.job, "score-again")
        summary = explorer.client.get(f"/jobs/{second}").text
        page = explorer.client.get(f"/jobs/{second}/round").text
        first_round = explorer.client.get(f"/jobs/{explorer.job}/round")

    assert f'href="/jobs/{second}/round"' in summary
    assert "Round 2: 1 relabelled, 1 dropped, 1 kept" in page
    shown = re.sub(r"<[^>]*>", " ", page).split("probably wrong")[1].split()[:2]
    assert shown == [str(counts.wrong) for counts in (before, label_counts(scores))]
    assert f'href="/jobs/{explorer.job}/images?mark=any"' in page
    assert first_round.status_code == 404
