"""CIFAR-10 with labels that people gave: the scores find what people find hard or wrong."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks import linear_probe
from difficulty_service.analyses.audit.audit import Audit, AuditOptions, audit
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.store import FeatureStore, create_store
from difficulty_service.scores.agreement import FlagAgreement, RankAgreement
from difficulty_service.scores.file import read_scores
from difficulty_service.scores.joined_files import read_columns
from difficulty_service.scoring.pipeline import ScoreRequest, execute, score_features
from difficulty_service.settings.options import ScoringOptions

TRAINING_IMAGES, TEST_IMAGES = 5000, 2500
TRAINING_FILES = "cifar10_train_1.parquet"
DEFAULT = ScoringOptions()

pytestmark = [pytest.mark.analysis("audit"), pytest.mark.long]


def extract_cifar(location: Path, out: Path, **changes: object) -> FeatureStore:
    request = {
        "location": str(location),
        "out": out,
        "backbone": "builtin",
        "dataset": DatasetOptions(id_column="index"),
    } | changes
    return execute(Plan(**request)).store  # type: ignore[arg-type]


def score(store: FeatureStore, out: Path, fit: ScoringOptions = DEFAULT) -> pa.Table:
    score_features(store, ScoreRequest(out, fit))
    return read_scores(out).table


def judge(scores: pa.Table, against: Path, column: str, score_column: str = "rmd") -> Audit:
    options = AuditOptions("index", column, score_column=score_column)
    return audit(scores, read_columns(str(against), ["index", column]), options)


def rows_of(scores: pa.Table) -> list[int]:
    """Which rows of their file the images are."""
    return [int(name) for name in scores["sample_id"].to_pylist()]


def relabel(store: FeatureStore, labels: torch.Tensor, folder: Path) -> FeatureStore:
    """The same features with other labels."""
    copy = create_store(folder, store.description)
    for shard, own in enumerate(labels.split(store.description.shard_size)):
        copy.write_shard(shard, replace(store.read_shard(shard), labels=own), [])
    return copy


@pytest.fixture(scope="module")
def train_store(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Built-in features of the first training images."""
    return extract_cifar(
        shared / "data" / TRAINING_FILES,
        tmp_path_factory.mktemp("cifar10") / "train",
        dataset=DatasetOptions(id_column="index", limit=TRAINING_IMAGES),
    )


@pytest.fixture(scope="module")
def heldout_store(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Built-in features of the first test images."""
    return extract_cifar(
        shared / "data" / "cifar10_test.parquet",
        tmp_path_factory.mktemp("cifar10") / "test",
        dataset=DatasetOptions(id_column="index", limit=TEST_IMAGES),
    )


@pytest.fixture(scope="module")
def train_scores(train_store: FeatureStore, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return score(train_store, tmp_path_factory.mktemp("scores") / "train.parquet")


def test_every_training_image_has_a_score_in_the_official_order(
    train_scores: pa.Table, shared: Path
) -> None:
    official = pq.read_table(shared / "data" / TRAINING_FILES, columns=["label"])["label"]

    rows = rows_of(train_scores)
    assert len(set(rows)) == TRAINING_IMAGES
    assert rows == sorted(rows)
    assert train_scores["label"].to_pylist() == official.take(rows).to_pylist()
    assert train_scores["rmd"].null_count == 0
    assert train_scores["rmd_loo"].null_count == 0


@pytest.mark.parametrize(("matmul_dtype", "bound"), [("auto", 1e-3), ("float64", 1e-9)])
def test_the_mean_score_of_real_images_without_a_ridge_is_zero(
    heldout_store: FeatureStore, tmp_path: Path, matmul_dtype: str, bound: float
) -> None:
    fit = ScoringOptions(shrinkage="none", matmul_dtype=matmul_dtype)

    scores = score(heldout_store, tmp_path / "scores.parquet", fit)

    assert abs(np.mean(scores["rmd"].to_numpy())) < bound


def test_images_that_people_mislabel_score_harder(train_scores: pa.Table, shared: Path) -> None:
    result = judge(train_scores, shared / "data" / TRAINING_FILES, "noisy_worst")

    assert isinstance(result.agreement, FlagAgreement)
    assert result.num_joined == TRAINING_IMAGES
    assert result.agreement.auroc > 0.55


def test_wrong_labels_are_found_among_labels_that_people_gave(
    train_store: FeatureStore, train_scores: pa.Table, shared: Path, tmp_path: Path
) -> None:
    """The noisy labels are scored; the official ones say which of them are wrong."""
    pattern = shared / "data" / TRAINING_FILES
    noisy = read_columns(str(pattern), ["noisy_worst"])["noisy_worst"].to_numpy()
    noisy = noisy[rows_of(train_scores)]
    relabelled = relabel(train_store, torch.from_numpy(noisy.astype(np.int64)), tmp_path / "store")

    scores = score(relabelled, tmp_path / "scores.parquet")

    result = judge(scores, pattern, "label")
    assert isinstance(result.agreement, FlagAgreement)
    assert result.agreement.auroc > 0.88


def test_images_that_people_disagree_on_score_harder(
    heldout_store: FeatureStore, shared: Path, tmp_path: Path
) -> None:
    scores = score(heldout_store, tmp_path / "scores.parquet")

    result = judge(scores, shared / "data" / "cifar10_test.parquet", "human_counts")

    assert isinstance(result.agreement, RankAgreement)
    assert result.agreement.low > 0.15


def test_a_linear_probe_of_the_built_in_encoder_is_worth_having(
    train_store: FeatureStore,
    heldout_store: FeatureStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stores = (str(train_store.folder), str(heldout_store.folder))
    monkeypatch.setattr(sys, "argv", ["linear_probe.py", *stores])

    linear_probe.main()

    assert float(capsys.readouterr().out.split()[-1]) >= 0.75


@pytest.mark.weights
def test_a_real_imagenet_network_finds_hard_what_people_disagree_on(
    shared: Path, tmp_path: Path
) -> None:
    weights = shared / "weights" / "mobilenetv2_100.imagenet1k.safetensors"
    store = extract_cifar(
        shared / "data" / "cifar10_test.parquet",
        tmp_path / "store",
        backbone="timm:mobilenetv2_100",
        network=BackboneOptions(weights=str(weights), device=torch.device("cpu")),
        dataset=DatasetOptions(id_column="index", limit=500),
    )

    scores = score(store, tmp_path / "scores.parquet")

    result = judge(scores, shared / "data" / "cifar10_test.parquet", "human_counts", "rmd_loo")
    assert isinstance(result.agreement, RankAgreement)
    assert result.agreement.low > 0.15
