"""From a store and Gaussians to the columns of a score file."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import rankdata
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions, Shrinkage
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.gaussians.leave_one_out import compare_left_out
from difficulty_service.gaussians.products import BATCH_ROWS
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scores.file import METADATA_KEY, read_scores
from difficulty_service.scores.provenance import FittedOn
from difficulty_service.scoring import store as score_store_module
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.store import RowCounts, score_in_memory, score_store
from difficulty_service.settings.options import ScorerOptions
from tests.factories import store_of

DIM = 4


def make_features(samples: int, runs: int = 1, classes: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(samples) % classes
    centres = 3 * torch.randn(classes, DIM, generator=generator)
    base = torch.randn(samples, DIM, generator=generator) + centres[labels]
    views = 0.2 * torch.randn(samples, runs, DIM, generator=generator)
    return (base[:, None] + views).reshape(-1, DIM), labels


def make_store(folder: Path, samples: int = 60, runs: int = 1, **changes: object) -> FeatureStore:
    """Two shards of unequal size."""
    described = {"class_names": ["cat", "dog"], "backbone": "builtin"} | changes
    features, labels = make_features(samples, runs, len(described["class_names"]))
    views = features.view(samples, runs, DIM)
    return store_of(folder, views, labels, shard_size=max(40, samples - 40), **described)


def fit_to(  # noqa: ANN201
    store: FeatureStore,
    runs: int = 1,
    classes: int = 2,
    matmul_dtype: str = "float64",
    shrinkage: Shrinkage = "none",
):
    shards = [store.read_shard(shard) for shard in range(2)]
    features = torch.cat([each.features for each in shards])
    labels = torch.cat([each.labels for each in shards])
    return fit(features, labels, classes, FitOptions(shrinkage, matmul_dtype, runs))


def score(
    store: FeatureStore,
    gaussians: Gaussians,
    fitted_on: FeatureDescription,
    scorers: Sequence[str] = ("rmd",),
) -> pa.Table:
    out = store.folder / "scores.parquet"
    score_store(store, FittedGaussians(gaussians, fitted_on), out, ScorerOptions(scorers=scorers))
    return read_scores(out).table


def test_every_sample_has_one_row_in_the_order_of_the_store(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    table = score(store, fit_to(store), store.description)

    assert table["sample_id"].to_pylist() == [f"s{index}" for index in range(60)]
    assert table["label_name"].to_pylist() == ["cat", "dog"] * 30
    assert table["rmd"].null_count == 0
    assert not {"rmd_std", "kmeans", "suspicion"} & {*table.column_names}


def test_the_metadata_say_of_which_images_the_gaussians_are(tmp_path: Path) -> None:
    store = make_store(tmp_path, corruption="fog:3")

    score(store, fit_to(store), store.description)

    fitted_on = read_scores(tmp_path / "scores.parquet").provenance.fitted_on
    known = FittedOn(dataset="photos", fingerprint="f", num_samples=60, corruption="fog:3")
    assert fitted_on == known


def test_distances_are_those_of_the_scorer(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    gaussians = fit_to(store)
    features, labels = make_features(60)
    expected = relative_mahalanobis(gaussians).distances(features, labels)

    table = score(store, gaussians, store.description)

    for name in ("md", "md_agnostic", "rmd", "label_margin"):
        np.testing.assert_allclose(table[name].to_numpy(), getattr(expected, name), rtol=1e-9)
    assert table["nearest_label"].to_pylist() == expected.nearest_label.tolist()


def test_runs_are_averaged_and_their_spread_is_kept(tmp_path: Path) -> None:
    store = make_store(tmp_path, runs=3)
    gaussians = fit_to(store, runs=3)
    features, labels = make_features(60, runs=3)
    scorer = relative_mahalanobis(gaussians)
    rmd = scorer.rmd(features, labels.repeat_interleave(3)).view(60, 3)
    to_each = torch.stack(
        [
            scorer.distances(features, torch.full((180,), label)).md.view(60, 3).mean(dim=1)
            for label in range(2)
        ],
        dim=1,
    )

    table = score(store, gaussians, store.description)

    np.testing.assert_allclose(table["rmd"].to_numpy(), rmd.mean(dim=1), rtol=1e-9)
    np.testing.assert_allclose(table["rmd_std"].to_numpy(), rmd.std(dim=1), rtol=1e-5)
    assert table["nearest_label"].to_pylist() == to_each.argmin(dim=1).tolist()
    margin = (to_each.gather(1, labels[:, None]) - to_each.gather(1, 1 - labels[:, None]))[:, 0]
    np.testing.assert_allclose(table["label_margin"].to_numpy(), margin, rtol=1e-8)
    assert table["rmd_loo"].null_count == 0


def test_the_baselines_have_a_score_for_every_sample(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    table = score(store, fit_to(store), store.description, ["rmd", "kmeans", "knn"])

    assert (table["kmeans"].to_numpy() >= 0).all()
    assert (table["knn"].to_numpy() > 0).all()


def test_new_data_is_matched_by_class_name(tmp_path: Path) -> None:
    fitted = make_store(tmp_path / "fitted")
    turned = make_store(tmp_path / "new", class_names=["dog", "cat"], fingerprint="other")
    gaussians = fit_to(fitted)

    table = score(turned, gaussians, fitted.description)

    assert table["label_name"].to_pylist() == ["dog", "cat"] * 30
    assert table["label"].to_pylist() == [1, 0] * 30
    assert "rmd_loo" not in table.column_names


def test_a_class_that_only_the_new_data_has_is_null_and_named(tmp_path: Path) -> None:
    fitted = make_store(tmp_path / "fitted")
    new = make_store(tmp_path / "new", class_names=["cat", "newt"], fingerprint="other")

    out = tmp_path / "s.parquet"
    summary = score_store(new, FittedGaussians(fit_to(fitted), fitted.description), out)

    rows = read_scores(out).table.to_pylist()
    assert all((row["rmd"] is None) == (row["label_name"] == "newt") for row in rows)
    assert all(row["md_agnostic"] is not None and row["nearest_label"] < 2 for row in rows)
    assert summary.warnings[-1] == (
        "no score for 30 of 60 images, because the Gaussians were fitted to fewer than two images "
        "of their class: newt"
    )
    provenance = read_scores(out).provenance
    assert provenance.class_names == ("cat", "dog", "newt")
    assert provenance.num_scored == summary.num_scored == 30


def test_gaussians_of_another_backbone_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    other = FeatureDescription.of(store.description.to_json() | {"backbone": "clip-vit-b16"})

    with pytest.raises(
        StatisticsError, match='backbone: "builtin" in the features, "clip-vit-b16" in the G'
    ):
        score(store, fit_to(store), other)


def test_the_summary_holds_the_hardest_and_the_easiest_samples(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    out = tmp_path / "s.parquet"

    summary = score_store(store, FittedGaussians(fit_to(store), store.description), out)

    ordered = read_scores(out).table.sort_by([("rmd", "descending")])
    for actual, expected in ((summary.hardest, ordered[:20]), (summary.easiest, ordered[-20:])):
        assert actual["sample_id"].to_pylist() == expected["sample_id"].to_pylist()
        assert actual["rmd"].to_pylist() == expected["rmd"].to_pylist()
    assert (summary.num_samples, summary.num_scored) == (60, 60)


def test_the_metadata_of_singular_features_is_json_for_every_reader(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    for shard in range(2):
        table = store.read_shard(shard)
        doubled = torch.cat([table.features, table.features], dim=1)
        store.write_shard(shard, replace(table, features=doubled), [])
    fitted = FittedGaussians(fit_to(store), store.description)

    score_store(store, fitted, tmp_path / "s.parquet")

    described = pq.read_schema(tmp_path / "s.parquet").metadata[METADATA_KEY].decode()
    assert "Infinity" not in described
    assert json.loads(described)["within_condition"] is None
    assert json.loads(described)["within_rank"] == DIM


@pytest.mark.parametrize(("matmul_dtype", "rtol"), [("float64", 1e-6), ("float32", 1e-4)])
@pytest.mark.parametrize("runs", [1, 3])
def test_with_a_ridge_samples_are_compared_with_classes_as_if_left_out(
    tmp_path: Path, runs: int, matmul_dtype: str, rtol: float
) -> None:
    store = make_store(tmp_path, runs=runs)
    gaussians = fit_to(store, runs, matmul_dtype=matmul_dtype, shrinkage="leave-one-out")
    features, labels = make_features(60, runs)
    rows = labels.repeat_interleave(runs)
    md_agnostic = relative_mahalanobis(gaussians).distances(features, rows).md_agnostic

    table = score(store, gaussians, store.description)
    other = store.description.to_json() | {"fingerprint": "of other samples"}
    elsewhere = score(store, gaussians, FeatureDescription.of(other))

    nearest_label, margins = compare_left_out(gaussians, features, rows, md_agnostic)
    assert gaussians.within.ridge > 0
    assert table["nearest_label"].to_pylist() == nearest_label.tolist()
    np.testing.assert_allclose(table["label_margin"].to_numpy(), margins, rtol=rtol)
    plain = relative_mahalanobis(gaussians).distances(features, rows).label_margin.view(60, runs)
    np.testing.assert_allclose(elsewhere["label_margin"].to_numpy(), plain.mean(dim=1), rtol=rtol)


@pytest.mark.parametrize("runs", [1, 3])
def test_many_samples_are_scored_a_few_thousand_at_a_time(tmp_path: Path, runs: int) -> None:
    samples = 2 * BATCH_ROWS + 123
    store = make_store(tmp_path, samples, runs=runs)
    gaussians = fit_to(store, runs=runs)
    features, labels = make_features(samples, runs)
    expected = relative_mahalanobis(gaussians).rmd(features, labels.repeat_interleave(runs))

    table = score(store, gaussians, store.description)

    assert table["sample_id"].to_pylist() == [f"s{index}" for index in range(samples)]
    np.testing.assert_allclose(
        table["rmd"].to_numpy(), expected.view(samples, runs).mean(dim=1), rtol=1e-9
    )
    ranks = (rankdata(table["rmd"].to_numpy()) - 1) / (samples - 1)
    np.testing.assert_array_equal(table["percentile"].to_numpy(), ranks.astype(np.float32))


@pytest.mark.parametrize("runs", [1, 3])
def test_products_in_float32_give_the_same_columns_but_for_rounding(
    tmp_path: Path, runs: int
) -> None:
    store = make_store(tmp_path, 1000, runs=runs)

    exact, table = (
        score(store, fit_to(store, runs=runs, matmul_dtype=matmul_dtype), store.description)
        for matmul_dtype in ("float64", "float32")
    )

    assert table["nearest_label"].equals(exact["nearest_label"])
    for name in ("md", "md_agnostic", "rmd", *["rmd_std"] * (runs > 1), "rmd_loo", "label_margin"):
        expected = exact[name].to_numpy()
        np.testing.assert_allclose(table[name].to_numpy(), expected, rtol=1e-3, atol=1e-3)


def test_the_score_file_is_written_in_groups_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_store(tmp_path, 3 * BATCH_ROWS)
    expected = score(whole, fit_to(whole), whole.description)
    monkeypatch.setattr(score_store_module, "ROWS_PER_GROUP", 2 * BATCH_ROWS)

    table = score(whole, fit_to(whole), whole.description)

    metadata = pq.read_metadata(tmp_path / "scores.parquet")
    sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert len(sizes) == 2
    assert sizes[0] >= 2 * BATCH_ROWS
    assert table.equals(expected)


def test_copies_are_found_in_memory_as_in_the_file(tmp_path: Path) -> None:
    features, labels = make_features(60)
    features[[7, 50]] = features[[3, 10]]
    store = store_of(tmp_path / "store", features, labels, shard_size=40)
    fitted = FittedGaussians(fit_to(store), store.description)

    in_memory = score_in_memory(store, fitted)

    score_store(store, fitted, tmp_path / "s.parquet")
    assert in_memory.table.equals(read_scores(tmp_path / "s.parquet").table)
    copies = in_memory.table["duplicate_of"].to_pylist()
    assert {row: copy for row, copy in enumerate(copies) if copy} == {7: "s3", 50: "s10"}


def test_rows_are_counted_by_the_evidence_against_their_labels() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "label": pa.array([0, 0, 1, 1, 1, 2], pa.int32()),
            "rmd": [1.0, 1.0, 1.0, 1.0, 1.0, None],
            "label_margin": [-2.0, 0.0, 2.0, 2.0, 3.0, None],
            "suspicion": [-3.0, 0.0, 1.0, 0.0, 0.5, None],
        }
    )
    counts, plain = RowCounts(), RowCounts()

    for _ in range(2):
        counts.update(batch)
        plain.update(batch.drop_columns(["suspicion"]))

    assert counts == RowCounts(
        samples=12,
        unlike=6,
        doubtful=6,
        suspicious=4,
        judged=10,
        between=2,
        unscored=Counter({2: 2}),
        class_sizes=Counter({1: 6, 0: 4}),
    )
    assert (counts.scored, counts.compared, counts.by_evidence) == (10, 10, 4)
    assert plain.judged == 0
    assert plain.by_evidence == 6
