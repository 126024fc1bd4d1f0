"""A head applied to other features: the file, the order, the R-AUROC, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.base.errors import DatasetError, FeatureStoreError, TrainingError
from difficulty_service.features.description import FeatureKind
from difficulty_service.features.store import open_store
from trainer.uncertainty.application import (
    apply_head,
    read_uncertainties,
    require_uncertainty_file_name,
)
from trainer.uncertainty.head import TrainedHead, UncertaintyHead
from trainer.uncertainty.retrieval import evaluate_retrieval
from trainer.uncertainty.training import predict_uncertainties

CPU = torch.device("cpu")

WriteRuns = Callable[..., str]


def make_head(description: dict[str, object]) -> TrainedHead:
    torch.manual_seed(0)
    head = UncertaintyHead(torch.zeros(6), torch.ones(6), (8,))
    settings = {"uncertainty": {"hidden": [8]}, "features": FeatureKind.of(description).kind()}
    return TrainedHead(head.eval(), settings)


@pytest.fixture
def trained() -> TrainedHead:
    """A head for the features of `write_runs`."""
    return make_head({"backbone": "builtin", "feature_dim": 6})


def test_every_sample_gets_the_mean_uncertainty_of_its_runs_in_order(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path
) -> None:
    features = torch.randn(10, 2, 6)

    applied = apply_head(trained, write_runs(features=features), tmp_path / "u.parquet", device=CPU)

    written = read_uncertainties(tmp_path / "u.parquet")
    expected = predict_uncertainties(trained.head, features)
    assert written.table["sample_id"].to_pylist() == [f"{row}.png" for row in range(10)]
    assert written.table["label"].to_pylist() == [row % 3 for row in range(10)]
    assert written.table["uncertainty"].to_pylist() == pytest.approx(expected.tolist(), rel=1e-6)
    assert applied.num_samples == 10
    assert applied.retrieval == evaluate_retrieval(expected, features[:, 0], torch.arange(10) % 3)


def test_the_file_says_which_head_and_features_it_is_of(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path
) -> None:
    apply_head(trained, write_runs(dataset="photos"), tmp_path / "u.parquet", device=CPU)

    provenance = read_uncertainties(tmp_path / "u.parquet").provenance

    assert provenance["schema_version"] == 1
    assert provenance["head"] == trained.description
    assert (provenance["backbone"], provenance["dataset"]) == ("builtin", "photos")
    assert provenance["augment_runs"] == 2


@pytest.mark.parametrize("change", [{"backbone": "clip-vit-b16"}, {"weights_sha256": "11"}])
def test_features_of_another_backbone_are_refused_by_name(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path, change: dict[str, str]
) -> None:
    location = write_runs(**change)

    with pytest.raises(TrainingError, match=rf"other features .*{next(iter(change))}: .*head"):
        apply_head(trained, location, tmp_path / "u.parquet", device=CPU)

    assert not (tmp_path / "u.parquet").exists()


FULL: dict[str, Any] = {"precision": "float32"}
PILOT = {"num_images": 9, "float32": 1.0, "bfloat16": 2.0, "agreement": 0.9996}
HALF: dict[str, Any] = {"precision": "bfloat16", "precision_pilot": PILOT}


@pytest.mark.parametrize(("of_head", "of_features"), [(FULL, HALF), (HALF, FULL)])
def test_features_of_the_other_precision_get_a_warning_where_both_were_compared(
    write_runs: WriteRuns, tmp_path: Path, of_head: dict[str, Any], of_features: dict[str, Any]
) -> None:
    trained = make_head({"backbone": "builtin", "feature_dim": 6} | of_head)
    trained.description["features"].update(of_head)

    applied = apply_head(trained, write_runs(**of_features), tmp_path / "u.parquet", device=CPU)

    (warning,) = applied.warnings
    assert f"features are of {of_features['precision']} and those of the head" in warning
    provenance = read_uncertainties(tmp_path / "u.parquet").provenance
    assert provenance["precision"] == of_features["precision"]


def test_features_of_a_precision_that_was_asked_for_are_refused(
    write_runs: WriteRuns, tmp_path: Path
) -> None:
    trained = make_head({"backbone": "builtin", "feature_dim": 6, "precision": "float32"})

    with pytest.raises(TrainingError, match='precision: "float32" for the head, "bfloat16" in'):
        apply_head(trained, write_runs(precision="bfloat16"), tmp_path / "u.parquet", device=CPU)


def test_the_r_auroc_can_be_left_out(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path
) -> None:
    out, location = tmp_path / "u.parquet", write_runs()

    applied = apply_head(trained, location, out, device=CPU, r_auroc=False)

    assert applied.retrieval is None
    assert applied.num_samples == len(read_uncertainties(out).table) == 10


def test_the_r_auroc_of_many_samples_is_only_computed_on_request(
    trained: TrainedHead,
    write_runs: WriteRuns,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, location = tmp_path / "u.parquet", write_runs()
    monkeypatch.setattr("trainer.uncertainty.application.CHEAP_SAMPLES", 9)

    unasked = apply_head(trained, location, out, device=CPU)
    asked = apply_head(trained, location, out, device=CPU, r_auroc=True)

    assert unasked.retrieval is None
    assert asked.retrieval is not None
    assert asked.retrieval.num_samples == 10


@pytest.mark.parametrize("num_samples", [1, 2])
def test_few_samples_get_uncertainties(
    trained: TrainedHead, write_runs: WriteRuns, num_samples: int, tmp_path: Path
) -> None:
    location = write_runs(features=torch.randn(num_samples, 2, 6))

    applied = apply_head(trained, location, tmp_path / "u.parquet", device=CPU)

    assert applied.num_samples == num_samples
    assert (applied.retrieval is None) == (num_samples == 1)


def test_arrays_are_taken_by_a_head_of_arrays(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((20, 6))
    labels = np.arange(20) % 2
    np.savez(tmp_path / "x.npz", features=features, labels=labels)

    applied = apply_head(
        make_head({"feature_dim": 6}), str(tmp_path / "x.npz"), tmp_path / "u.parquet", device=CPU
    )

    assert applied.num_samples == 20


def test_a_damaged_shard_leaves_no_file(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path
) -> None:
    location = write_runs()
    part = open_store(Path(location)).shard_file(1)
    part.write_bytes(part.read_bytes()[:-10])

    with pytest.raises(FeatureStoreError, match=r"part-00001\.arrow is damaged"):
        apply_head(trained, location, tmp_path / "u.parquet", device=CPU)

    assert [file.name for file in tmp_path.iterdir()] == ["runs"]


def test_a_store_without_features_is_refused(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path
) -> None:
    location = write_runs(features=torch.empty(0, 2, 6))

    with pytest.raises(DatasetError, match="holds no features"):
        apply_head(trained, location, tmp_path / "u.parquet", device=CPU)


def test_a_changed_file_of_uncertainties_is_found(
    trained: TrainedHead, write_runs: WriteRuns, tmp_path: Path
) -> None:
    file = tmp_path / "u.parquet"
    apply_head(trained, write_runs(), file, device=CPU)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)

    with pytest.raises(TrainingError, match=r"u\.parquet is damaged"):
        read_uncertainties(file)


@pytest.mark.parametrize("name", ["u.csv", "u", "."])
def test_other_names_of_the_output_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrainingError, match=r"expected is \.parquet|is a folder"):
        require_uncertainty_file_name(tmp_path / name)


@pytest.mark.parametrize("columns", [["x"], ["sample_id", "label", "uncertainty"]])
def test_another_parquet_file_is_refused(columns: list[str], tmp_path: Path) -> None:
    pq.write_table(pa.table({name: [1] for name in columns}), tmp_path / "u.parquet")

    with pytest.raises(TrainingError, match=r"u\.parquet is not a file of uncertainties"):
        read_uncertainties(tmp_path / "u.parquet")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"there is no file .*u\.parquet"):
        read_uncertainties(tmp_path / "u.parquet")
