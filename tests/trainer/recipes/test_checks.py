"""Settings that are right one by one and make no sense together."""

from pathlib import Path

import pytest

from difficulty_service.base.errors import ConfigError
from trainer.recipes.file import read_recipe

LEAST = """
[data]
train = "photos/"
[model]
name = "resnet18"
[training]
epochs = 30
"""


@pytest.fixture
def least(tmp_path: Path) -> Path:
    """A file with no more than a recipe needs."""
    file = tmp_path / "recipe.toml"
    file.write_text(LEAST, encoding="utf-8")
    return file


def refusal(file: Path, *overrides: str) -> str:
    """The message about an invalid recipe."""
    with pytest.raises(ConfigError) as caught:
        read_recipe(file, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (
            'name = "focal", gama = 3',
            'gama: no such key; did you mean gamma? [loss] of name "focal"',
        ),
        ('name = "focal", gamma = "3"', 'loss.gamma = "3": must be a number'),
        ('name = "focal", gamma = true', "loss.gamma = true: must be a number"),
        ('name = "adafocal", num_bins = 1.5', "loss.num_bins = 1.5: must be a whole number"),
        ('name = "adafocal", limits = 3', "loss.limits = 3: must be a list"),
        ('name = "adafocal", num_bins = 0', "num_bins = 0 must be 1 or more"),
        ('name = "adafocal", limits = [5, 2]', "first_gamma = 1 must be within limits"),
        ('name = "focal", gamma = -1', "gamma = -1 must be 0 or more"),
        ('name = "focal_gra", gamma = -1', "gamma = -1 must be 0 or more"),
        ('name = "dual_focal", gamma = -1', "gamma = -1 must be 0 or more"),
        ('name = "lambert_focal", largest_gamma = -1', "largest_gamma = -1 must be 0 or more"),
        ('name = "bsce", gamma = -1', "gamma = -1 must be 0 or more"),
        ('name = "bsce_gra", gamma = -1', "gamma = -1 must be 0 or more"),
        ('name = "bsce_flsd_53", beta = 0.5', "beta = 0.5 must be 1 or more"),
        ('name = "poly_loss", epsilon = -2', "epsilon = -2 must be -1 or more"),
        ('name = "logit_l1", coefficient = -1', "coefficient = -1 must be 0 or more"),
        ('name = "entropy_regularised", alpha = -1', "alpha = -1 must be 0 or more"),
        ('name = "mmce", coefficient = -1', "coefficient = -1 must be 0 or more"),
        ('name = "mmce_weighted", coefficient = -1', "coefficient = -1 must be 0 or more"),
        ('name = "correctness_ranking", coefficient = -1', "coefficient = -1 must be 0 or more"),
        ('name = "scheduled_focal", boundaries = [0.3, 0.6]', "must be whole epochs where"),
        ('name = "scheduled_focal", gammas = [5, 3, -1]', "gammas[2] = -1 must be 0 or more"),
        ('name = "bsce", form = "product"', "choose 'norm' or 'sum'"),
        ('name = "scheduled_focal", gammas = [5, 3]', "give one gamma more than boundaries"),
        ('name = "correctness_ranking", confidence = "max"', "no confidence 'max'"),
    ],
)
def test_a_wrong_constant_of_a_loss_shows_before_any_data_is_read(
    least: Path, loss: str, expected: str
) -> None:
    assert expected in refusal(least, f"loss={{{loss}}}")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["regulariser.weights=scores"], "has no effect with regulariser.alpha = 0"),
        (
            ["loss.name=entropy_regularised", "regulariser.alpha=0.3"],
            "subtracts the entropy that regulariser.alpha = 0.3 subtracts; choose one of the two",
        ),
        (["regulariser.scores=s.parquet"], 'has no effect with regulariser.weights = "constant"'),
        (["model.name=probe"], 'takes features, and data.kind is "images"'),
        (["data.kind=text"], 'takes images, and data.kind is "text"; choose text_cnn'),
        (["schedule.name=steps"], "needs schedule.milestones"),
        (
            ["schedule.name=steps", "schedule.milestones=[0.5, 150]"],
            "schedule.milestones = [0.5, 150.0]: 150 is never reached in training.epochs = 30",
        ),
        (
            ["schedule.name=steps", "schedule.milestones=[20, 150, 250]"],
            "150 and 250 are never reached in training.epochs = 30; give milestones below 30",
        ),
        (["training.final=best", "data.validation=0"], "needs validation data"),
        (
            ["data.kind=trees", "model.name=tree_lstm", "sampling.order=mixed"],
            'sampling.order = "mixed": has no meaning for trees',
        ),
        (
            ["training.mixing=mixup", "loss.name=mmce"],
            "MMCE takes one label per sample, not a distribution: it compares confidence",
        ),
        (
            ["data.distribution_column=votes", "loss.name=correctness_ranking"],
            "was predicted; choose another loss, or remove data.distribution_column",
        ),
        (
            ["training.mixing=cutmix", "loss.targets=posterior"],
            'training.mixing = "cutmix": has no effect with loss.targets = "posterior"',
        ),
        (
            ["data.distribution_column=votes", "data.label_noise=0.1"],
            "has no effect with data.distribution_column, which replaces the labels",
        ),
        (["training.mixing_alpha=0.2"], 'has no effect with training.mixing = "none"'),
        (["sampling.start=0.5"], 'it applies to "easy_first" and "hard_first"; remove it'),
        (["sampling.column=knn"], 'set sampling.order = "easy_first", "hard_first" or "mixed"'),
        (
            ["data.kind=features", "data.augmentation=flip"],
            'data.augmentation = "flip": has no effect with data.kind = "features"',
        ),
        (
            ["data.kind=features", "data.on_error=stop"],
            'has no effect with data.kind = "features"; it applies to "images"; remove it',
        ),
        (
            ["data.kind=text", "data.image_size=32"],
            'with data.kind = "text"; it applies to "images"',
        ),
        (
            ["data.labels=noisy.parquet"],
            'has no effect with data.kind = "images"; it applies to "features"; remove it',
        ),
        (["data.vocabulary_size=10"], 'it applies to "text" and "trees"'),
        (["data.kind=text", "data.image_column=image"], "name the column with data.text_column"),
        (["data.kind=features", "data.test_split=test"], "feature stores have no splits"),
        (["regulariser.column=knn"], 'set regulariser.weights = "scores" and regulariser.alpha'),
        (["data.test_split=test"], "needs a dataset in data.test"),
        (["data.validation_split=val"], "needs a dataset in data.validation"),
        (["loss.name=adafocal", "data.validation=0.0"], "needs validation data"),
        (["loss.scores=s.parquet"], 'has no effect with loss.weights = "constant"'),
        (
            ["loss.targets=posterior", "loss.weights=label_probability"],
            "acts on the same doubt a second time",
        ),
        *(
            (["loss.targets=posterior", f"loss.name={name}"], "labels of other samples")
            for name in ("mmce", "mmce_weighted", "correctness_ranking")
        ),
        (["loss.name=scheduled_focal"], "100 and 250 are never reached in"),
        (["optimiser.nesterov=true", "optimiser.momentum=0"], "needs optimiser.momentum above 0"),
        (["training.seeds=[1, 1]"], "names a seed twice"),
    ],
)
def test_settings_that_exclude_each_other_are_refused_with_a_remedy(
    least: Path, overrides: list[str], expected: str
) -> None:
    assert expected in refusal(least, *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["regulariser.weights=scores", "regulariser.alpha=0.3"],
        ["schedule.name=steps", "schedule.milestones=[0.5, 20]"],
        ["loss.name=adafocal", "data.validation=others/", "data.validation_split=val"],
        ["loss.name=scheduled_focal", "loss.boundaries=[0.3, 0.7]", "loss.fractional=true"],
        ["data.kind=features", "data.labels=noisy.parquet", "model.name=probe"],
        ["loss.weights=label_probability", "loss.name=mmce", "loss.scores=scores.parquet"],
        ["loss.targets=posterior", "loss.name=adafocal"],
        ["model.name=timm:resnet50", "model.pretrained=true"],
    ],
)
def test_settings_that_need_each_other_are_taken_together(
    least: Path, overrides: list[str]
) -> None:
    assert read_recipe(least, overrides).name == "recipe"
