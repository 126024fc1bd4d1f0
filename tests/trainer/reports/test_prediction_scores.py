"""Loss and doubt of a run as a score file, which the other commands read."""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from difficulty_service.analyses.audit.score_comparison import compare_scores
from difficulty_service.base.errors import ScoreFileError, TrainingError
from difficulty_service.cli.report import write_score_report
from difficulty_service.scores.file import SCHEMA, read_scores
from trainer.config import Recipe
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.metrics.bootstrap import Resampling
from trainer.reports.evaluation import (
    MEANINGS,
    EvaluationRequest,
    evaluate_seeds,
    prediction_scores,
    write_prediction_scores,
)
from trainer.run_folder import seed_folders
from trainer.runs.evaluate import DatasetChoice
from trainer.runs.train import RunRequest, run_seed

pytestmark = pytest.mark.analysis("audit")

CLASSES = ("bird", "cat", "dog")


def train(recipe: Recipe, folder: Path, *seeds: int) -> Path:
    for seed in seeds:
        run_seed(RunRequest(recipe, seed, folder, "cpu"))
    return folder


def write(run: Path, out: Path, name: str = "test.npz") -> None:
    """Writes the scores of the predictions that the seeds saved."""
    predictions = {seed: read_predictions(seed / name) for seed in seed_folders(run)}
    write_prediction_scores(out, run, predictions)


def evaluate(run: Path, out: Path, location: str) -> None:
    """Evaluates a run on a dataset and writes the scores."""
    request = EvaluationRequest(
        DatasetChoice(location), resampling=Resampling(num_resamples=2), scores=out
    )
    evaluate_seeds(run, request, "cpu", lambda: None)


@pytest.fixture(scope="module")
def run(
    probe_recipe: Callable[..., Recipe],
    test_features: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A probe with two seeds and test data."""
    recipe = probe_recipe(data={"test": test_features}, training={"epochs": 1})
    return train(recipe, tmp_path_factory.mktemp("run"), 0, 1)


def shares_of(logits: Tensor) -> list[float]:
    largest = max(logits.tolist())
    powers = [math.exp(logit - largest) for logit in logits.tolist()]
    return [power / sum(powers) for power in powers]


def test_the_columns_are_means_over_the_seeds(run: Path, tmp_path: Path) -> None:
    write(run, tmp_path / "own.parquet")

    scores = read_scores(tmp_path / "own.parquet")
    seeds = [read_predictions(run / f"seed-{seed}" / "test.npz") for seed in (0, 1)]
    computed = {"sample_id", "label", "label_name", "nearest_label_name", *MEANINGS}
    assert scores.table.schema == pa.schema([each for each in SCHEMA if each.name in computed])
    assert scores.table["sample_id"].to_pylist() == list(seeds[0].sample_ids)
    for row, target in enumerate(seeds[0].targets.tolist()):
        shares = [shares_of(each.logits[row]) for each in seeds]
        logs = [sum(math.log(each[name]) for each in shares) / 2 for name in range(3)]
        values = {name: scores.table[name][row].as_py() for name in MEANINGS}
        assert values["loss"] == pytest.approx(-logs[target])
        assert values["doubt"] == pytest.approx(sum(1 - max(each) for each in shares) / 2)
        others = [log for name, log in enumerate(logs) if name != target]
        assert values["label_margin"] == pytest.approx(max(others) - logs[target])
        assert values["nearest_label"] == logs.index(max(logs))
        assert scores.table["label"][row].as_py() == target
        assert scores.table["label_name"][row].as_py() == CLASSES[target]
    losses = scores.table["loss"].to_pylist()
    by_rank = sorted(range(len(losses)), key=losses.__getitem__)
    percentiles = [scores.table["percentile"][row].as_py() for row in by_rank]
    assert percentiles == pytest.approx([rank / (len(losses) - 1) for rank in range(len(losses))])


def test_the_provenance_names_the_run_its_models_and_the_dataset(
    run: Path, test_features: str, tmp_path: Path
) -> None:
    write(run, tmp_path / "own.parquet")

    provenance = read_scores(tmp_path / "own.parquet").provenance
    model = run / "seed-1" / "model.safetensors"
    assert provenance.dataset == test_features
    assert provenance.class_names == tuple(CLASSES)
    assert provenance.predictions.run == str(run)
    assert provenance.predictions.columns == MEANINGS
    hashed = hashlib.sha256(model.read_bytes()).hexdigest()
    assert provenance.predictions.seeds["seed-1"] == hashed


def test_confident_and_wrong_samples_are_the_hardest() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.1, 0.0], [0.0, 0.1], [0.0, 9.0], [0.0, 0.0]])
    predictions = Predictions(list("abcde"), logits, torch.zeros(5, dtype=torch.int64))

    table = prediction_scores([predictions], ("yes", "no"))

    assert table["loss"].to_pylist() == [*sorted(table["loss"].to_pylist()[:4]), math.log(2)]
    assert table["percentile"].to_pylist() == [0.0, 0.25, 0.75, 1.0, 0.5]
    assert [margin > 0 for margin in table["label_margin"].to_pylist()] == [0, 0, 1, 1, 0]
    assert table["doubt"].to_pylist()[0] == table["doubt"].to_pylist()[3]


def test_a_single_class_has_no_margin() -> None:
    predictions = Predictions(["a"], torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))

    table = prediction_scores([predictions], ("only",))

    assert table["label_margin"].to_pylist() == [None]
    assert table["loss"].to_pylist() == [0.0]


def test_a_run_weighs_its_samples_by_the_losses_of_another(
    run: Path, features: str, probe_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    losses = tmp_path / "losses.parquet"
    evaluate(run, losses, features)

    weighted = probe_recipe(
        regulariser={"alpha": 0.1, "weights": "scores", "scores": str(losses), "column": "loss"},
        training={"epochs": 1},
    )
    train(weighted, tmp_path / "weighted", 0)

    assert (tmp_path / "weighted" / "seed-0" / "weights.json").exists()


def test_seeds_with_validation_samples_of_their_own_need_a_dataset(
    probe_recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    run = train(probe_recipe(training={"epochs": 1}), tmp_path / "run", 0, 1)

    with pytest.raises(TrainingError, match=r"evaluated on different samples; .*with data"):
        write(run, tmp_path / "own.parquet", "validation.npz")

    assert not (tmp_path / "own.parquet").exists()


def test_reports_and_comparisons_are_by_the_loss(
    image_recipe: Callable[..., Recipe],
    images: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    scores = tmp_path / "own.csv"
    recipe = image_recipe(training={"epochs": 1}, loss={"name": "cross_entropy"})
    run = train(recipe, tmp_path / "run", 0)
    evaluate(run, scores, images)

    write_score_report(scores, tmp_path / "report.html")
    comparison = compare_scores(read_scores(scores), read_scores(scores), "loss")

    page = (tmp_path / "report.html").read_text()
    assert "the cross-entropy of the label in nats" in page
    assert "Spread of loss" in page
    assert "RMD" not in page.partition("<script")[0]
    assert "warning" not in capfd.readouterr().err
    assert comparison.spearman == pytest.approx(1)


def test_a_name_that_no_score_file_can_have_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ScoreFileError, match=r"own\.xlsx"):
        write(run, tmp_path / "own.xlsx")
