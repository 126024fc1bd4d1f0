"""What the score file of a feature store has of `suspicion` and `agree`."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from torch import Tensor

from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.batches import TensorBatches
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.scorers.suspicion import POSTERIORS, PosteriorOptions, fit_posteriors
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES, SCORERS
from difficulty_service.scores.tiers import ALMOST_CERTAIN
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.fitted_gaussians import FittedGaussians
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.scoring.store import score_store
from difficulty_service.settings.options import ScorerOptions, ScoringOptions
from tests.factories import store_of

SAMPLES, SHARD, DIM = 1300, 700, 8


def features_and_labels() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (SAMPLES,), generator=generator)
    centres = 2 * torch.randn(3, DIM, generator=generator)
    features = torch.randn(SAMPLES, DIM, generator=generator) + centres[labels]
    labels[::40] = (labels[::40] + 1) % 3
    return features, labels


def make_store(folder: Path, **changes: object) -> FeatureStore:
    described = {"backbone": "builtin"} | changes
    return store_of(folder, *features_and_labels(), shard_size=SHARD, **described)


def score(
    store: FeatureStore,
    *scorers: str,
    fitted: FittedGaussians | None = None,
    matmul_dtype: str = "auto",
) -> ScoreFile:
    out = store.folder / "scores.parquet"
    options = ScoringOptions(scorers=scorers, matmul_dtype=matmul_dtype)
    score_features(store, ScoreRequest(out, options, fitted))
    return read_scores(out)


@pytest.mark.slow
def test_a_store_gets_the_numbers_of_features_in_memory(tmp_path: Path) -> None:
    features, labels = features_and_labels()
    options = PosteriorOptions(POSTERIORS, 3, matmul_dtype=torch.float64)
    posteriors = fit_posteriors(TensorBatches(features, labels), options)
    expected = posteriors.columns(features, labels)

    scores = score(make_store(tmp_path), "suspicion", "agree", matmul_dtype="float64")

    # Sums of two shards are rounded otherwise, which moves the likeliest scale by about 1e-7.
    for name in ("suspicion", "agree"):
        np.testing.assert_allclose(scores.table[name], expected[name], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scores.table["p_wrong"].to_numpy(), expected["p_wrong"], rtol=1e-6)
    for label in ("suggested_label", *LIKELIEST_CLASSES):
        assert scores.table[label].to_pylist() == expected[label].tolist()
    for name in LIKELIEST_CLASSES.values():
        np.testing.assert_allclose(scores.table[name], expected[name], rtol=1e-6)
    for name in POSTERIORS:
        written = getattr(scores.provenance, name).to_json()
        assert written == pytest.approx(posteriors.description[name])


def test_the_other_columns_stay_as_they_are(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    without = score(store, "rmd")

    scores = score(store, "rmd", "suspicion")

    added = {*SCORERS["suspicion"].columns}
    assert {*scores.table.column_names} - {*without.table.column_names} == added
    for name in without.table.column_names:
        assert scores.table[name].equals(without.table[name])
    assert without.provenance.suspicion is None


def test_doubtful_samples_are_counted_by_suspicion_where_it_is_asked_for(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    for scorer, column in (("rmd", "label_margin"), ("suspicion", "suspicion")):
        scores = score(store, scorer)
        above = pc.sum(pc.greater(scores.table[column], 0)).as_py()
        assert scores.provenance.num_doubtful == above > 0


def test_the_summary_counts_the_labels_by_suspicion_and_holds_the_most_suspicious(
    tmp_path: Path,
) -> None:
    store, out = make_store(tmp_path / "store"), tmp_path / "scores.parquet"
    fitted = fit_store(store, FitOptions())

    summary = score_store(store, fitted, out, ScorerOptions(scorers=("suspicion",)))

    scores = read_scores(out)
    suspicion, margin = (scores.table[name].to_numpy() for name in ("suspicion", "label_margin"))
    wrong, between = int((suspicion > 0).sum()), int(((suspicion <= 0) & (margin > 0)).sum())
    fit = scores.provenance.suspicion
    shares = (fit.noise_wrong_low, fit.noise_wrong_high)
    assert wrong > 0 < between
    certain = int((scores.table["p_wrong"].to_numpy() > ALMOST_CERTAIN).sum())
    assert 0 < certain < wrong
    assert summary.labels == LabelCounts(SAMPLES, wrong, certain, between, shares)
    assert (summary.evidence, summary.num_doubtful) == ("suspicion", wrong)
    largest = sorted(suspicion[suspicion > 0], reverse=True)[:20]
    assert summary.doubtful["suspicion"].to_pylist() == pytest.approx(largest)


@pytest.mark.slow
def test_the_seed_of_the_features_chooses_the_landmarks(tmp_path: Path) -> None:
    first, again, other = (
        score(make_store(tmp_path / str(turn), seed=seed), "suspicion").table["suspicion"]
        for turn, seed in enumerate((0, 0, 1))
    )

    assert first.equals(again)
    assert not first.equals(other)


def test_the_suggested_label_goes_by_the_classes_of_the_gaussians(tmp_path: Path) -> None:
    store = make_store(tmp_path / "here")
    fitted = fit_store(
        make_store(tmp_path / "there", class_names=["owl", "cat", "dog"]), FitOptions()
    )

    table = score(store, "suspicion", fitted=fitted).table
    own = score(store, "suspicion").table

    names = table["suggested_label_name"].to_pylist()
    assert names == own["suggested_label_name"].to_pylist()
    order = {"owl": 0, "cat": 1, "dog": 2}
    assert table["suggested_label"].to_pylist() == [order[name] for name in names]
    given = store.class_names
    for name in LIKELIEST_CLASSES:
        assert table[name].to_pylist() == [order[given[label]] for label in own[name].to_pylist()]


def test_nothing_is_suspected_where_there_is_one_class(tmp_path: Path) -> None:
    features, labels = features_and_labels()
    store = make_store(tmp_path)
    for shard, rows in enumerate((slice(0, SHARD), slice(SHARD, SAMPLES))):
        table = store.read_shard(shard)
        alone = ShardTable(table.sample_ids, 0 * labels[rows], table.runs, features[rows])
        store.write_shard(shard, alone, [])

    columns = score(store, "suspicion", "agree").table.column_names

    assert not {*columns} & {*SCORERS["suspicion"].columns, "agree", "rmd", "label_margin"}
    assert {"md_agnostic", "percentile"} <= {*columns}
