"""What requests share is opened whole or not at all, and closed in reverse."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api import app, services
from api.app import create_app
from api.http.fair_queue import FairQueue
from api.metrics import Metrics
from api.online.process import ScoringProcess
from api.pages.rendering import problem_page
from api.results.attached_tables import AttachedTables
from api.results.comparisons import Comparisons
from api.results.thumbnails import Thumbnails
from api.results.tsne_maps import TsneMaps
from api.services import ServiceInputs, Services, open_services
from api.settings import Settings
from api.uploads.checking import UploadChecks
from difficulty_service.base.apart import Apart
from tests.service import ServiceClient, client_of

CLOSED = (
    *(TsneMaps, Comparisons, ScoringProcess, Thumbnails, UploadChecks, AttachedTables),
    Apart,
    Engine,
)
"""What is closed at the end, in this order; `Apart` stands for the previews."""


@pytest.fixture
def inputs(tmp_path: Path) -> ServiceInputs:
    """What the services are opened with."""
    settings = Settings(data_dir=tmp_path, device="cpu", default_backbone="builtin")
    return ServiceInputs(settings, Metrics(), problem_page, None, lambda: False)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """All that has been closed, in this order, with what it closed itself before it."""
    found: list[object] = []

    def noting(close: Callable[[object], None]) -> Callable[[object], None]:
        def note(one: object) -> None:
            found.append(one)
            close(one)

        return note

    for kind in CLOSED:
        name = "dispose" if kind is Engine else "close"
        monkeypatch.setattr(kind, name, noting(getattr(kind, name)))
    return found


def kinds(closed: list[object], previews: object = None) -> list[type]:
    """Kinds of what was closed, without the processes that belong to something else."""
    return [type(each) for each in closed if not isinstance(each, Apart) or each is previews]


def fail(*_arguments: object, **_options: object) -> None:
    raise OSError("no space left")


def test_everything_is_closed_at_the_end_and_the_database_last(
    inputs: ServiceInputs, closed: list[object]
) -> None:
    with open_services(inputs) as opened:
        assert closed == []

    assert kinds(closed, opened.previews) == list(CLOSED)


@pytest.mark.parametrize(
    ("failing", "opened"),
    [
        ("Thumbnails", [UploadChecks, AttachedTables, Engine]),
        ("Searches", [kind for kind in CLOSED if kind is not Apart]),
    ],
    ids=["on the way", "after the last"],
)
def test_a_failure_while_opening_closes_what_was_opened(
    inputs: ServiceInputs,
    closed: list[object],
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    opened: list[type],
) -> None:
    monkeypatch.setattr(services, failing, fail)

    with pytest.raises(OSError, match="no space left"), open_services(inputs):
        pass

    assert kinds(closed) == opened


def test_what_cannot_be_closed_keeps_nothing_else_open(
    inputs: ServiceInputs, closed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Thumbnails, "close", fail)

    with pytest.raises(OSError, match="no space left"), open_services(inputs) as opened:
        pass

    assert kinds(closed, opened.previews) == [kind for kind in CLOSED if kind is not Thumbnails]


def test_a_start_that_fails_after_the_services_are_open_closes_them(
    inputs: ServiceInputs, closed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "load_conversions", fail)

    with (
        pytest.raises(OSError, match="no space left"),
        ServiceClient(create_app(inputs.settings)),
    ):
        pass

    assert [kind for kind in CLOSED if kind is not Apart] == kinds(closed)


def test_an_application_that_stops_closes_them(inputs: ServiceInputs, closed: list[object]) -> None:
    with ServiceClient(create_app(inputs.settings)) as client:
        previews = client.services.previews
        assert closed == []

    assert kinds(closed, previews) == list(CLOSED)


def test_the_services_are_all_that_the_application_keeps(tmp_path: Path) -> None:
    before = create_app(Settings(data_dir=tmp_path))

    with client_of(tmp_path) as client:
        kept = client.app.state._state  # type: ignore[attr-defined]
        opened = client.services

    assert before.state._state == {}
    assert kept == {"services": opened}
    assert isinstance(opened, Services)


def test_each_purpose_has_a_queue_of_its_own(tmp_path: Path) -> None:
    with client_of(tmp_path) as client:
        queues = vars(client.services.queues).values()

    assert all(isinstance(queue, FairQueue) for queue in queues)
    assert len(set(map(id, queues))) == len(queues)
