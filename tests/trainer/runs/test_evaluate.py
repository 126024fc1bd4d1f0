"""Evaluation of a finished run of a probe: its predictions, other features and OOD features."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import ConfigError, DatasetError, TrainingError
from tests.factories import store_of
from tests.small_runs import finish
from trainer.config import Recipe
from trainer.data import open_splits
from trainer.evaluation.prediction_file import read_predictions
from trainer.evaluation.record import STAGES
from trainer.metrics.bootstrap import Resampling
from trainer.metrics.mahalanobis import FEATURE_SCORES, fit_feature_gaussians
from trainer.metrics.ood import OOD_SCORES
from trainer.runs.corruptions import evaluate_corruptions
from trainer.runs.evaluate import (
    DatasetChoice,
    OodChoice,
    evaluate_on_dataset,
    evaluate_ood_dataset,
    evaluate_saved_predictions,
    load_model,
    measure_features,
)

MakeRecipe = Callable[..., Recipe]

CLASSES = ("bird", "cat", "dog")
FEW = Resampling(num_resamples=20)


def write_store(folder: Path, features: Tensor, labels: Tensor, names: Sequence[str]) -> str:
    """A folder of features of these classes."""
    return str(store_of(folder, features, labels, class_names=names).folder)


def noise(num_samples: int) -> Tensor:
    return torch.randn(num_samples, 6, generator=torch.Generator().manual_seed(5))


def metrics_of(folder: Path) -> dict[str, Any]:
    return load_checked((folder / "metrics.json").read_text())


def test_saved_predictions_give_the_metrics_of_the_run_with_intervals(probe: Path) -> None:
    record = evaluate_saved_predictions(probe, FEW)

    expected = metrics_of(probe)
    assert record.keys() == expected.keys() == set(STAGES)
    for stage, metrics in record.items():
        added = metrics.keys() - expected[stage].keys()
        assert added == {
            f"{name}_{end}"
            for name, value in expected[stage].items()
            if value is not None and not name.startswith("temperature")
            for end in ("low", "high")
        }
        assert {name: metrics[name] for name in expected[stage]} == expected[stage]
    raw = record["raw"]
    assert raw["accuracy_low"] <= raw["accuracy"] <= raw["accuracy_high"]


def test_classes_in_another_order_are_matched_by_name(probe: Path, tmp_path: Path) -> None:
    trained = load_model(probe, "cpu")
    labels = torch.arange(30) % 3
    features = noise(30) + F.one_hot(labels, 6)
    usual = write_store(tmp_path / "usual", features, labels, CLASSES)
    reversed_store = write_store(tmp_path / "reversed", features, 2 - labels, CLASSES[::-1])

    record, predictions = evaluate_on_dataset(trained, DatasetChoice(usual), FEW)
    reversed_record, reversed_predictions = evaluate_on_dataset(
        trained, DatasetChoice(reversed_store), FEW
    )

    assert torch.equal(reversed_predictions.targets, labels)
    assert torch.equal(reversed_predictions.logits, predictions.logits)
    assert reversed_record == record


def test_a_class_that_the_model_does_not_know_is_refused_by_name(
    probe: Path, tmp_path: Path
) -> None:
    location = write_store(tmp_path / "other", noise(6), torch.arange(6) % 2, ("cat", "newt"))

    with pytest.raises(DatasetError, match=r"1 classes that the training dataset lacks.*newt"):
        evaluate_on_dataset(load_model(probe, "cpu"), DatasetChoice(location), FEW)


def test_features_of_another_dimension_are_refused(probe: Path, tmp_path: Path) -> None:
    location = write_store(
        tmp_path / "short", torch.randn(6, 5), torch.arange(6) % 2, ("cat", "dog")
    )

    with pytest.raises(DatasetError, match="5 dimensions, and the model takes 6"):
        evaluate_on_dataset(load_model(probe, "cpu"), DatasetChoice(location), FEW)


@pytest.mark.parametrize("choice", [{"split": "test"}, {"label_column": "fine"}])
def test_a_feature_store_takes_no_split_and_no_label_column(
    probe: Path, tmp_path: Path, choice: dict[str, str]
) -> None:
    location = write_store(tmp_path / "other", noise(6), torch.arange(6) % 2, ("cat", "dog"))

    with pytest.raises(ConfigError, match="leave out split and label_column"):
        evaluate_on_dataset(load_model(probe, "cpu"), DatasetChoice(location, **choice), FEW)


def test_ood_detection_matches_scikit_learn_and_needs_no_common_classes(
    probe: Path, tmp_path: Path
) -> None:
    trained = load_model(probe, "cpu")
    shifted = noise(40) - 3
    location = write_store(tmp_path / "odd", shifted, torch.arange(40) % 2, ("newt", "toad"))

    record, curves = evaluate_ood_dataset(trained, OodChoice(location))

    own = read_predictions(probe / "test.npz").logits
    with torch.no_grad():
        logits = torch.cat([own, trained.model(shifted)])
    is_ood = np.arange(len(logits)) >= len(own)
    confidence = logits.double().softmax(1).amax(1)
    assert record["positive"] == "ood"
    assert record["msp"]["auroc"] == pytest.approx(roc_auc_score(is_ood, -confidence))
    energy = -torch.logsumexp(logits.double(), 1)
    assert record["energy"]["auroc"] == pytest.approx(roc_auc_score(is_ood, energy))
    assert record["max_logit"]["auroc"] == pytest.approx(roc_auc_score(is_ood, -logits.amax(1)))
    for stage in STAGES[1:]:
        scaled = logits.double() / record[stage]["temperature"]
        assert record[stage]["entropy"]["auroc"] == pytest.approx(
            roc_auc_score(is_ood, torch.special.entr(scaled.softmax(1)).sum(1))
        )
        assert record[stage]["max_logit"] == record["max_logit"]
    assert [(each.stage, each.by) for each in curves] == [
        (stage, by) for stage in STAGES for by in OOD_SCORES
    ]
    areas = [
        np.trapezoid(each.curve.true_positive_rates, each.curve.false_positive_rates)
        for each in curves[: len(OOD_SCORES)]
    ]
    assert areas == pytest.approx([record[each.by]["auroc"] for each in curves[: len(OOD_SCORES)]])


def test_mahalanobis_distances_are_those_of_the_inputs_of_the_last_layer(
    probe: Path, tmp_path: Path
) -> None:
    trained = load_model(probe, "cpu")
    shifted = noise(40) - 3
    location = write_store(tmp_path / "odd", shifted, torch.arange(40) % 2, ("newt", "toad"))

    measured = measure_features(trained)
    record, _ = evaluate_ood_dataset(trained, OodChoice(location), None, measured)

    # A linear probe has its normalised inputs as features.
    splits = open_splits(trained.recipe.data, trained.seed, torch.device("cpu"))
    assert splits.test is not None
    normalisation = trained.model.get_submodule("normalisation")
    train, test = (
        torch.cat(list(each.inputs.batches([torch.arange(len(each))], None)))
        for each in (splits.train, splits.test)
    )
    gaussians = fit_feature_gaussians([(normalisation(train), splits.train.labels)], 3)
    known, other = (gaussians.scores(normalisation(each)) for each in (test, shifted))
    torch.testing.assert_close(measured.distances, known)
    is_ood = np.arange(len(test) + 40) >= len(test)
    for by in FEATURE_SCORES:
        expected = roc_auc_score(is_ood, torch.cat([known[by], other[by]]))
        assert record[by]["auroc"] == pytest.approx(expected)


def test_mahalanobis_distances_need_a_network_that_ends_in_a_linear_layer(probe: Path) -> None:
    trained = load_model(probe, "cpu")
    with_softmax = replace(trained, model=nn.Sequential(trained.model, nn.LogSoftmax(dim=1)))

    with pytest.raises(TrainingError, match=r"ends in a linear layer.*leave out mahalanobis"):
        measure_features(with_softmax)


def test_an_ood_feature_store_takes_no_split_and_no_column(probe: Path, features: str) -> None:
    with pytest.raises(ConfigError, match="leave out ood_split and ood_column"):
        evaluate_ood_dataset(load_model(probe, "cpu"), OodChoice(features, split="test"))


def test_features_cannot_be_corrupted(probe: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"corruptions need a recipe of images.*'features'.*; leave out corruptions=True",
    ):
        evaluate_corruptions(load_model(probe, "cpu"), lambda: None)


def test_a_run_without_test_data_is_evaluated_on_its_validation_samples(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(), tmp_path)

    record = evaluate_saved_predictions(folder, FEW)

    # A temperature fitted on the evaluated samples would look too good.
    assert record.keys() == {"raw"}
    assert record["raw"]["nll"] == metrics_of(folder)["raw"]["nll"]


def test_a_run_without_any_predictions_asks_for_data(
    probe_recipe: MakeRecipe, test_features: str, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(data={"validation": 0.0}), tmp_path)

    with pytest.raises(TrainingError, match="has no test data; name a dataset with data"):
        evaluate_saved_predictions(folder, FEW)
    record, _ = evaluate_on_dataset(load_model(folder, "cpu"), DatasetChoice(test_features), FEW)

    assert record.keys() == {"raw"}


def test_ood_detection_needs_test_data(
    probe_recipe: MakeRecipe, test_features: str, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(), tmp_path)

    with pytest.raises(
        TrainingError, match=r"no test data to compare .* with; train with data\.test"
    ):
        evaluate_ood_dataset(load_model(folder, "cpu"), OodChoice(test_features))
