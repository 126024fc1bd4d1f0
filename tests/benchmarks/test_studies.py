"""Studies of many runs: a mistake in one trial is found before any of them trains."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy import stats
from torch.nn import functional as F

import difficulty_service as ds
from benchmarks.studies import ablations, losses, pruning, resnet34, selection, spread, toys
from benchmarks.studies.toys import (
    PROBABILITIES,
    TRUE_PROBABILITIES,
    changes_of_weights,
    gradient_factors,
    minimisers,
)
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.errors import ConfigError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from trainer.config import Normalise
from trainer.losses import LOSSES
from trainer.weights.formula import sample_weights


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
    settings = ("training.epochs=20", *losses.NETWORK, losses.HELD_OUT)
    recipe = Study("cifar10_small_resnet", settings, tmp_path, 1).recipe_of(trial)
    assert recipe.training.epochs == 20


@pytest.mark.parametrize(
    "trial",
    dict.fromkeys(
        trial
        for pair in ablations.pairs(Path("measures.parquet"), Path("losses.parquet"))
        for trial in (pair.method, pair.reference)
    ),
    ids=lambda trial: trial.method,
)
def test_every_method_of_the_ablations_has_settings_that_count(
    trial: Trial, tmp_path: Path
) -> None:
    recipe = Study(
        "cifar10_small_resnet", (*losses.NETWORK, losses.HELD_OUT), tmp_path, 1
    ).recipe_of(trial)

    assert recipe.name == trial.method


def test_each_comparison_of_the_ablations_changes_one_thing() -> None:
    compared = ablations.pairs(Path("measures.parquet"), Path("losses.parquet"))

    changed: dict[str, set[str]] = {}
    for pair in compared:
        differ = set(pair.method.settings) ^ set(pair.reference.settings)
        changed.setdefault(pair.question, set()).update(
            setting.partition("=")[0] for setting in differ
        )

    weights = {f"regulariser.{key}" for key in ("weights", "scores", "column", "score_temperature")}
    assert changed == {
        "weights on the gradient": {"loss.name"},
        "entropy over alpha": weights,
        "entropy, each at its alpha": {"regulariser.alpha", *weights},
        "T of min-max weights": {"regulariser.score_temperature"},
        "measures of difficulty": {"regulariser.column", "regulariser.scores"},
        "beside cross-entropy": {"regulariser.alpha", *weights},
    }


def scores_of_a_study() -> np.ndarray:
    return 40 * np.random.default_rng(0).standard_normal(600)


@pytest.mark.parametrize("family", spread.COLUMNS)
def test_weights_have_the_spread_that_they_are_asked_for(family: str) -> None:
    scores = scores_of_a_study() if family != "rank" else np.arange(600.0)
    _, normalise, winsorise = spread.COLUMNS[family]

    for wanted in spread.SPREADS[family]:
        found = spread.weights_of(family, scores, wanted)

        weights = sample_weights(
            torch.from_numpy(scores),
            normalise=normalise,
            score_temperature=found.temperature,
            winsorise=winsorise,
        )
        assert weights.std(correction=0) / weights.mean() == pytest.approx(wanted, rel=1e-6)
        assert weights.mean() == pytest.approx(found.mean)


@pytest.mark.parametrize("wanted", [0.05, 0.3, 1.0, 2.0])
def test_at_equal_spread_and_strength_scale_and_origin_of_scores_make_no_difference(
    wanted: float,
) -> None:
    scores = scores_of_a_study()

    def at_mean_1(normalise: Normalise, temperature: float) -> torch.Tensor:
        weights = sample_weights(
            torch.from_numpy(scores), normalise=normalise, score_temperature=temperature, dim=256
        )
        return weights / weights.mean()

    minmax = spread.weights_of("min-max", scores, wanted).temperature
    raw = spread.weights_of("raw", scores, wanted).temperature

    zscore = at_mean_1("zscore", minmax * np.ptp(scores) / scores.std())
    torch.testing.assert_close(at_mean_1("minmax", minmax), zscore, rtol=1e-9, atol=0)
    per_dimension = at_mean_1("per_dimension", raw / 256)
    torch.testing.assert_close(at_mean_1("none", raw), per_dimension, rtol=1e-9, atol=0)


@pytest.mark.parametrize("permuted", [None, 2])
@pytest.mark.parametrize("family", spread.COLUMNS)
@pytest.mark.parametrize("learner", spread.LEARNERS.values(), ids=spread.LEARNERS)
def test_every_method_of_the_study_of_spreads_has_settings_that_count(
    family: str, permuted: int | None, learner: spread.Learner, tmp_path: Path
) -> None:
    weights = spread.Weights(family, 0.05, 0.7, 0.4)
    trial = weights.trial(tmp_path / "s.parquet", 0.1, permuted=permuted)

    study = Study(learner.recipe, learner.settings, tmp_path, 1)
    recipe = study.recipe_of(trial)

    assert recipe.regulariser.alpha == pytest.approx(0.25)
    assert ("permuted" in recipe.regulariser.column) == (permuted is not None)  # type: ignore[union-attr]
    study.run_folder(Trial(trial.method, (*trial.settings, "x" * 300))).mkdir()


def test_a_permutation_has_the_same_scores_in_another_order(tmp_path: Path) -> None:
    source, target = tmp_path / "scores.parquet", tmp_path / "more.parquet"
    pq.write_table(pa.table({"sample_id": list("abcd"), "rmd": [3.0, -1.0, 7.0, 2.0]}), source)

    spread.add_columns(source, target, range(3))

    table = pq.read_table(target)
    assert table["rank"].to_pylist() == [3, 1, 4, 2]
    permuted = [table[spread.permuted_column("rmd", seed)].to_pylist() for seed in range(3)]
    assert all(sorted(each) == [-1, 2, 3, 7] for each in permuted)
    assert len({tuple(each) for each in permuted}) > 1
    order = [[-1, 2, 3, 7].index(each) + 1 for each in permuted[0]]
    assert table["rank_permuted_0"].to_pylist() == order


def test_differences_of_the_ablations_are_paired_by_the_seed() -> None:
    ours, theirs = [3.0, 5.0, 4.5], [2.0, 4.5, 3.0]

    mean, error = ablations.paired(ours, theirs)

    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (mean - error, mean + error) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize(
    ("name", "loss"), [("focal", "focal"), ("dual focal", "dual_focal"), ("gBS", "bsce")]
)
@pytest.mark.parametrize("exponent", toys.EXPONENTS)
def test_the_weights_of_the_toy_data_are_those_of_the_losses(
    name: str, loss: str, exponent: int
) -> None:
    logits = 2 * torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).double()
    labels = torch.arange(50) % 4

    weight = toys.bases_of_weights(logits, labels)[name] ** exponent

    expected = LOSSES[loss](logits, labels, gamma=exponent)
    torch.testing.assert_close(weight * F.cross_entropy(logits, labels, reduction="none"), expected)


def test_a_mean_over_seeds_has_the_interval_of_students_t() -> None:
    values = [0.4, 0.5, 0.7]

    low, high = stats.t.interval(0.95, 2, sum(values) / 3, stats.sem(values))

    assert toys.shown(values, 3) == f"0.533 ± 0.153 [{low:.3f}, {high:.3f}]"
    assert toys.shown(values[:1], 3) == "0.400"


def test_factors_of_gradients_and_minimisers_of_focal_loss_are_those_of_its_formula() -> None:
    factors, best = gradient_factors(0), minimisers(0)

    for gamma in (1, 2, 3, 5):
        *shown, last = factors[f"gamma {gamma}"]
        own = np.array([*PROBABILITIES, last])
        expected = (1 - own) ** gamma - gamma * own * (1 - own) ** (gamma - 1) * np.log(own)
        assert shown == pytest.approx(expected[:-1], abs=2e-3)
        assert expected[-1] == pytest.approx(1, abs=1e-3)
        grid = np.linspace(0.5, 0.999, 4991)
        for q, found in zip(TRUE_PROBABILITIES, best[f"gamma {gamma}"], strict=True):
            risk = -q * (1 - grid) ** gamma * np.log(grid)
            risk -= (1 - q) * grid**gamma * np.log(1 - grid)
            assert found == pytest.approx(grid[risk.argmin()], abs=1e-3)
    assert best["gamma 0"] == pytest.approx(TRUE_PROBABILITIES, abs=1e-3)


def test_weights_change_with_as_many_probabilities_as_they_are_made_of() -> None:
    found = changes_of_weights(0)

    assert found["focal"] == pytest.approx([0, 0], abs=1e-9)
    others, rest = found["dual focal"]
    assert others > 0.1
    assert rest == pytest.approx(0, abs=1e-9)
    assert all(change > 0.01 for change in found["gBS"])


@pytest.fixture(scope="module")
def pool() -> pruning.Pool:
    """Forty images of two classes, whose difficulty is the number of the row; one has no score."""
    labels = np.arange(40) % 4 // 3
    rmd = np.arange(40.0)
    rmd[7] = np.nan
    columns = {"rmd": rmd, "forgotten": np.zeros(40)}
    return pruning.Pool(Path("images.parquet"), Path("scores.parquet"), labels, columns)


def test_a_choice_keeps_the_same_share_of_each_class(pool: pruning.Pool) -> None:
    for choice in ("random", "easy by RMD", "most forgotten"):
        kept = pruning.kept_rows(pool, choice, 0.5, seed=0)
        assert np.bincount(pool.labels[kept]).tolist() == [15, 5]


def test_the_easiest_or_the_hardest_are_kept_and_those_without_a_score_last(
    pool: pruning.Pool,
) -> None:
    rows = np.arange(40)
    scored = rows[(pool.labels == 1) & (rows != 7)]

    easy = pruning.kept_rows(pool, "easy by RMD", 0.9, seed=0)
    hard = pruning.kept_rows(pool, "hard by RMD", 0.9, seed=0)
    few = pruning.kept_rows(pool, "hard by RMD", 0.3, seed=0)

    assert easy[pool.labels[easy] == 1].tolist() == scored.tolist()
    assert hard[pool.labels[hard] == 1].tolist() == scored.tolist()
    assert few[pool.labels[few] == 1].tolist() == scored[-3:].tolist()


def test_what_is_equal_or_random_is_kept_by_the_seed(pool: pruning.Pool) -> None:
    for choice in ("random", "most forgotten"):
        kept = [pruning.kept_rows(pool, choice, 0.5, seed).tolist() for seed in (0, 0, 1)]
        assert kept[0] == kept[1] != kept[2]


def test_training_tells_how_wrong_and_how_often_forgotten_an_image_is(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 2
    pixels = generator.integers(0, 40, (60, 32, 32, 3), np.uint8) + (labels * 200)[
        :, None, None, None
    ].astype(np.uint8)
    given = labels.copy()
    given[:3] = 1 - given[:3]
    encoded = []
    for each in pixels:
        file = io.BytesIO()
        Image.fromarray(each).save(file, "png")
        encoded.append(file.getvalue())
    path = tmp_path / "images.parquet"
    pq.write_table(pa.table({"image": encoded, "label": given}), path)

    found = pruning.training_dynamics(path, epochs=10, seed=0)

    assert set(np.argsort(found["el2n"])[-3:]) == {0, 1, 2}
    assert (found["el2n"] <= np.sqrt(2) + 1e-6).all()
    assert (found["forgotten"][3:] < found["forgotten"][:3].min()).mean() > 0.9


def test_error_norms_are_those_of_each_image() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 5.0]])
    images = torch.zeros(2, 3, 1, 1)

    class Fixed(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return logits[: len(batch)]

    found = pruning.error_norms(Fixed(), images, torch.tensor([0, 1]))

    for row, label in enumerate((0, 1)):
        probabilities = np.exp(logits[row].numpy()) / np.exp(logits[row].numpy()).sum()
        probabilities[label] -= 1
        assert found[row].item() == pytest.approx(np.sqrt((probabilities**2).sum()), abs=1e-6)


def test_every_training_of_the_study_of_pruning_has_settings_that_count(tmp_path: Path) -> None:
    images = tmp_path / "images.parquet"
    pq.write_table(pa.table({"image": [b""] * 20, "label": [0, 1] * 10}), images)
    columns = {name: np.arange(20.0) for name, _ in pruning.SCORES.values()}
    pool = pruning.Pool(images, tmp_path / "scores.parquet", np.arange(20) % 2, columns)
    settings = (*pruning.NETWORK, *pruning.TRAINING)
    study = Study("cifar10_small_resnet", settings, tmp_path, 1)

    trials = pruning.trials_of(pool, seed=0)

    assert {study.recipe_of(each).name for each in trials.values()} == {
        each.method for each in trials.values()
    }
    kept = pq.read_table(tmp_path / "kept/hard-by-RMD-0.3-0.parquet")
    assert kept["label"].to_pylist() == [0, 1] * 3


def images_to_choose_from(folder: Path, of: selection.Images = selection.CIFAR10) -> selection.Pool:
    """A hundred images of two classes, around which features lie."""
    labels = np.arange(100) % 2
    images = folder / "images.parquet"
    pq.write_table(pa.table({"image": [b""] * 100, "label": labels}), images)
    noise = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    features = noise + 2 * torch.eye(2, 8)[labels]
    scores = ds.score(features, labels, scorers="rmd")
    return selection.Pool(of, images, folder / "test.parquet", features, labels, scores)


@pytest.mark.parametrize("images", selection.DATASETS, ids=lambda images: images.name)
def test_every_training_of_the_study_of_selection_has_settings_that_count(
    images: selection.Images, tmp_path: Path
) -> None:
    pool = images_to_choose_from(tmp_path, images)
    study = Study("cifar10_small_resnet", (*pruning.NETWORK, *pruning.TRAINING), tmp_path, 1)

    for name in selection.CHOICES:
        for share, epochs in images.epochs.items():
            trial = selection.trial_of(pool, name, share, seed=0)
            assert study.recipe_of(trial).training.epochs == epochs
            path = Path(study.recipe_of(trial).data.train)
            assert pq.read_table(path).num_rows == round(share * 100)


def test_images_to_label_are_those_that_the_strategy_says(tmp_path: Path) -> None:
    pool = images_to_choose_from(tmp_path)
    order = np.argsort(pool.scores.table["md_agnostic"].to_numpy())

    easy, hard = (
        selection.chosen_rows(pool, f"{each}, md_agnostic", 10, seed=0) for each in ("easy", "hard")
    )

    assert easy.tolist() == order[:10].tolist()
    assert hard.tolist() == order[::-1][:10].tolist()
    random = [selection.chosen_rows(pool, "random", 10, seed).tolist() for seed in (0, 0, 1)]
    assert random[0] == random[1] != random[2]


def test_images_of_tiny_imagenet_are_to_choose_from_or_to_test_on(tmp_path: Path) -> None:
    if not (selection.shared_folder() / "data/tiny_imagenet_val2000.parquet").exists():
        pytest.skip("Tiny ImageNet is not in DIFFICULTY_SHARED")

    test = pq.read_table(selection.select_pool(selection.TINY, tmp_path / "images.parquet"))

    chosen = pq.read_table(tmp_path / "images.parquet")
    few = tmp_path / "few.parquet"
    pq.write_table(chosen.slice(0, 20), few)
    assert len(open_dataset(str(few), DatasetOptions()).class_names) == 200
    assert np.bincount(test["label"].to_numpy()).tolist() == [2] * 200
    assert np.bincount(chosen["label"].to_numpy()).tolist() == [8] * 200
    assert not {*chosen["image"].to_pylist()} & {*test["image"].to_pylist()}


def test_a_choice_of_images_to_label_is_compared_with_the_random_one_by_the_seed(
    tmp_path: Path,
) -> None:
    pool = images_to_choose_from(tmp_path)
    found = {("random", 0.02): [30.0, 31.0, 33.0], ("typical", 0.02): [34.0, 33.0, 38.0]}

    random, typical = selection.rows_of(pool, found)

    mean, error = ablations.paired([34.0, 33.0, 38.0], [30.0, 31.0, 33.0])
    assert (typical["difference"], typical["difference_95"]) == (f"{mean:+.1f}", f"{error:.1f}")
    assert (typical["count"], typical["epochs"], typical["accuracy"]) == ("2", "40", "35.0")
    assert "difference" not in random


@pytest.mark.parametrize("position", range(len(resnet34.trials(Path("scores.parquet")))))
def test_every_method_of_the_study_on_a_gpu_has_settings_that_count(
    position: int, tmp_path: Path
) -> None:
    trial = resnet34.trials(Path("scores.parquet"))[position]
    study = Study("cifar10_resnet34_gpu", ("training.epochs=2",), tmp_path, 1, "cuda")

    recipe = study.recipe_of(trial)

    assert (recipe.regulariser.alpha > 0) == (
        trial.method in {"constant entropy", losses.DIFFICULTY}
    )
