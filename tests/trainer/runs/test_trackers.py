"""Trackers of Accelerate that follow a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from difficulty_service.base.errors import ConfigError, TrainingError
from tests.small_runs import RunRecorder, run
from trainer.config import Recipe

MakeRecipe = Callable[..., Recipe]


class Listing(GeneralTracker):
    """A tracker of somebody's own that lists its calls."""

    name = "listing"
    requires_logging_directory = False
    calls: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, run_name: str) -> None:
        super().__init__()
        self.calls.append(("init", run_name))

    @property
    def tracker(self) -> object:
        return self.calls

    def start(self) -> None:
        self.calls.append(("start", None))

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.calls.append(("configuration", values))

    def log(self, values: dict[str, Any], step: int | None = None, **_: object) -> None:
        self.calls.append(("log", (step, values)))

    def finish(self) -> None:
        self.calls.append(("finish", None))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "listing", Listing)
    Listing.calls.clear()
    return Listing.calls


def test_a_tracker_gets_the_recipe_and_the_record_of_each_epoch(
    calls: list[tuple[str, Any]], probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recorder = RunRecorder()
    recipe = probe_recipe(training={"epochs": 2, "trackers": ["listing"]})

    run(recipe, tmp_path, recorder, seed=3)

    assert [name for name, _ in calls] == [
        *("init", "start", "configuration", "log", "log", "finish")
    ]
    assert calls[0] == ("init", "tiny")
    configuration = calls[2][1]
    assert configuration["optimiser.learning_rate"] == 0.05
    assert configuration["seed"] == 3
    assert {type(value) for value in configuration.values()} <= {bool, int, float, str}
    (step, values), record = calls[4][1], recorder.epochs[1]
    assert step == 2
    assert values["validation/accuracy"] == record["validation_accuracy"]
    assert "epoch" not in values
    assert not (tmp_path / "seed-3" / "tensorboard").exists()


def test_a_tracker_is_finished_where_a_run_is_stopped(
    calls: list[tuple[str, Any]], probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = probe_recipe(training={"trackers": ["listing"]})

    run(recipe, tmp_path, RunRecorder(stop_after=1))

    assert calls[-1] == ("finish", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", r"Accelerate does not know.*mlflow.*tensorboard"),
        ("swanlab", r"'swanlab', whose package is not installed"),
    ],
)
def test_a_tracker_that_cannot_be_used_is_an_error(
    name: str, message: str, probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=message):
        run(probe_recipe(training={"trackers": [name]}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_is_named_once(probe_recipe: MakeRecipe) -> None:
    with pytest.raises(ConfigError, match="names a tracker twice"):
        probe_recipe(training={"trackers": ["tensorboard", "tensorboard"]})
