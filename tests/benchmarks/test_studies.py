"""Studies of many runs: a mistake in one trial is found before any of them trains."""

from pathlib import Path

import pytest

from benchmarks.studies import losses
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.errors import ConfigError


def test_a_trial_that_cannot_run_is_refused_before_the_first_one_has_trained(
    tmp_path: Path,
) -> None:
    study = Study("cifar10_small_resnet", (), tmp_path, 1)
    trials = [Trial("good", ()), Trial("bad", ("loss.name=focal", "loss.gama=3"))]
    with pytest.raises(ConfigError, match="gama"):
        run_trials(study, trials, [0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("trial", losses.FIXED, ids=lambda trial: trial.method)
def test_every_loss_of_the_study_of_losses_has_constants_that_its_epochs_allow(
    trial: Trial, tmp_path: Path
) -> None:
    settings = ("training.epochs=20", *losses.NETWORK)
    recipe = Study("cifar10_small_resnet", settings, tmp_path, 1).recipe_of(trial)
    assert recipe.training.epochs == 20
