"""The explorer shows its pages while the map and the vectors are still being made."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

from api import explore as explore_module
from api.app import create_app
from api.commands import explore_scores
from api.explore import ExploreOptions, explore
from api.explored import Rounds
from api.imported import make_features_files
from api.jobs.store import Job
from api.settings import Settings
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table, store_of

IDS = ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """Scores of four images of two classes."""
    columns = {"nearest_label": [1, 0, 1, 0], "label_margin": [2.0, -1.0, -2.0, -3.0]}
    table = score_table(
        [0, 0, 1, 1], ids=IDS, rmd=[4.0, 3.0, 2.0, 1.0], percentile=[1.0, 0.7, 0.3, 0.0], **columns
    )
    provenance = {"class_names": ["cat", "dog"], "dataset": "photos", "backbone": "builtin"}
    write_scores(tmp_path / "scores.parquet", table, Provenance.of(provenance))
    return tmp_path / "scores.parquet"


def keep_features(scores: Path, ids: Sequence[str]) -> None:
    """Features of some images beside the scores: cats unlike dogs."""
    labels = torch.tensor([each.startswith("dog") for each in ids]).long()
    noise = torch.randn(len(ids), 3, generator=torch.Generator().manual_seed(0))
    folder = scores.with_suffix(".features")
    store_of(folder, noise + 9 * labels[:, None], labels, ids, dataset="photos")


class Held:
    """Stands in for `add_features` and the server: features are added once `may_go_on` is set.

    `visit` is called with the pages while the explorer runs.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, visit: Callable[[TestClient, str], None]
    ) -> None:
        self.may_go_on = threading.Event()
        self._visit = visit
        monkeypatch.setattr(explore_module, "add_features", self._add)
        monkeypatch.setattr(explore_module, "run_server", self._serve)

    def finish(self) -> None:
        """Has the features added, and waits until they are."""
        self.may_go_on.set()
        for thread in threading.enumerate():
            if thread.name == "features":
                thread.join()

    def _add(self, root: str, job: Job, folder: Path) -> None:
        assert self.may_go_on.wait(60), "the pages wait for the features"
        make_features_files(root, job, folder)

    def _serve(
        self, settings: Settings, workers: int, listening: Callable[[str], None], rounds: Rounds
    ) -> None:
        del workers, listening
        with TestClient(create_app(settings, rounds), base_url="http://localhost") as client:
            self._visit(client, f"/jobs/{rounds.current}")


@pytest.mark.slow
def test_pages_are_shown_while_the_map_is_being_made(
    scores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_features(scores, ["cat/0.png", "cat/1.png", "dog/0.png"])
    fragment = {"hx-request": "true"}

    def visit(client: TestClient, address: str) -> None:
        first = client.get(address)
        assert (first.status_code, held.may_go_on.is_set()) == (200, False)
        assert "The map is being made" in client.get(f"{address}/map").text
        assert client.get(f"{address}/map", headers=fragment).status_code == 204
        assert "is being made from the features" in client.get(f"{address}/images/0").text
        assert client.get(f"{address}/images").status_code == 200

        held.finish()

        assert "being made" not in client.get(f"{address}/map").text
        assert client.get(f"{address}/map", headers=fragment).headers["HX-Refresh"] == "true"
        assert 'id="similar"' in client.get(f"{address}/images/0").text

    held = Held(monkeypatch, visit)
    explore(ExploreOptions(scores), 0, pytest.fail, print)

    assert held.may_go_on.is_set()


def test_features_beside_the_scores_that_cannot_be_used_are_told_and_pages_are_shown(
    scores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_features(scores, ["another.png"] * 2)
    told: list[str] = []

    def visit(client: TestClient, address: str) -> None:
        held.finish()
        assert client.get(address).status_code == 200
        assert "There is no map" in client.get(f"{address}/map").text

    held = Held(monkeypatch, visit)
    explore(ExploreOptions(scores), 0, told.append, print)

    (note,) = told
    assert note.startswith("There is no map, and no images like another one are shown: ")


@pytest.mark.slow
def test_features_that_are_added_already_are_not_awaited(
    scores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_features(scores, ["cat/0.png", "dog/0.png"])
    held = Held(monkeypatch, lambda _client, _address: held.finish())
    explore(ExploreOptions(scores), 0, pytest.fail, print)

    def visit(client: TestClient, address: str) -> None:
        assert 'id="similar"' in client.get(f"{address}/images/0").text

    never = Held(monkeypatch, visit)
    explore(ExploreOptions(scores), 0, pytest.fail, print)

    assert not never.may_go_on.is_set()


def test_an_explorer_that_ends_early_does_not_wait_for_the_map(
    scores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_features(scores, ["another.png"] * 2)
    held = Held(monkeypatch, lambda _client, _address: None)

    explore(ExploreOptions(scores), 0, pytest.fail, print)

    assert not held.may_go_on.is_set()
    held.finish()


def test_the_command_says_at_once_what_it_opens(
    scores: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before: list[str] = []
    monkeypatch.setattr(
        explore_module, "explore", lambda *_: before.append(capsys.readouterr().err)
    )

    explore_scores(scores, browser=False)

    assert before == [f"Opening {scores}\n"]
