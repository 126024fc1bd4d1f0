"""Seeds that wait for room on a cluster, by a stand-in for Ray that has none."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from difficulty_service.base.cluster import ActorPlan
from difficulty_service.base.errors import EngineError
from trainer.commands import on_ray
from trainer.commands.on_ray import RayPlaces, RunningOnRay
from trainer.commands.places import SeedToTrain
from trainer.commands.seed_actor import Answer, Surroundings
from trainer.recipes.file import read_recipe


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RayPlaces:
    ray = MagicMock()
    ray.wait.return_value = [], []
    monkeypatch.setattr(on_ray, "load_ray", lambda: ray)
    return RayPlaces(ActorPlan(1, 2, 1, 1), Surroundings(tmp_path, tmp_path / "token"))


@pytest.fixture
def seeds(places: RayPlaces, tmp_path: Path) -> list[RunningOnRay]:
    recipe = read_recipe("probe_quick")
    seeds = [SeedToTrain(f"seed {seed}", recipe, seed, tmp_path, False) for seed in range(2)]  # noqa: FBT003
    return [places.start(seed, place) for place, seed in enumerate(seeds)]


def test_seeds_that_find_no_gpu_end_with_a_sentence(
    places: RayPlaces, seeds: list[RunningOnRay], monkeypatch: pytest.MonkeyPatch
) -> None:
    places.wait(seeds, 0)
    monkeypatch.setattr(on_ray, "START_SECONDS", -1)

    with pytest.raises(EngineError, match="no node of the cluster had a GPU for a seed within"):
        places.wait(seeds, 0)


def test_a_seed_waits_for_as_long_as_another_one_trains(
    places: RayPlaces, seeds: list[RunningOnRay], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds[0]._take(Answer("", "", None))
    monkeypatch.setattr(on_ray, "START_SECONDS", 0)

    places.wait(seeds, 0)

    assert seeds[1].waits_for > 0


def test_an_actor_that_has_a_process_train_does_not_load_torch_itself() -> None:
    program = "import sys, trainer.commands.seed_actor; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603
