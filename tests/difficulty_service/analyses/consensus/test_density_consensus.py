"""Features of several backbones become one score file by the mean of their log-densities."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from difficulty_service.analyses.consensus.consensus import consensus_of
from difficulty_service.base.errors import DifficultyError, ScoreFileError
from difficulty_service.features.store import open_store
from difficulty_service.gaussians.label_noise import (
    SHARPNESS_OF_SUMS,
    add_label_sums,
    fit_noise,
    log_class_prior,
)
from difficulty_service.gaussians.products import Workspace
from difficulty_service.scorers.suspicion import POSTERIORS
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scoring.fit_store import fit_store_posteriors
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions
from tests.factories import store_of

NAMES = ("cat", "dog", "owl")
SAMPLES, SHARD = 700, 400


def make_store(
    folder: Path,
    seed: int,
    rows: Sequence[int] = range(SAMPLES),
    names: Sequence[str] = NAMES,
    dim: int = 8,
) -> Path:
    """Features of some of 700 samples, whose labels do not depend on the seed; 8 % are wrong."""
    truth = torch.randint(0, 3, (SAMPLES,), generator=torch.Generator().manual_seed(7))
    labels = truth.clone()
    labels[::13] = (labels[::13] + 1) % 3
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(SAMPLES, dim, generator=generator)
    features += 0.6 * torch.randn(3, dim, generator=generator)[truth]
    number = torch.tensor([names.index(name) for name in NAMES])
    chosen, ids = torch.tensor(list(rows)), [f"s{row}" for row in rows]
    described = {"class_names": names, "backbone": f"backbone-{seed}"}
    store_of(folder, features[chosen], number[labels[chosen]], ids, SHARD, **described)
    return folder


def score(store: Path, out: Path, *scorers: str) -> ScoreFile:
    score_features(open_store(store), ScoreRequest(out, ScoringOptions(scorers=scorers)))
    return read_scores(out)


def numbers(file: ScoreFile, column: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = file.table[column].cast(pa.float64()).to_numpy()
    return values


def test_the_consensus_of_a_backbone_with_itself_is_its_own_score(tmp_path: Path) -> None:
    one, other = (make_store(tmp_path / name, seed=1) for name in ("one", "other"))
    own = score(one, tmp_path / "scores.parquet", *POSTERIORS)

    result = consensus_of([one, other])

    for column in ("md", "rmd", "rmd_loo", "suspicion", "p_wrong", "agree", "percentile"):
        np.testing.assert_allclose(
            numbers(result, column), numbers(own, column), rtol=1e-4, atol=1e-4, err_msg=column
        )
    for column in ("sample_id", "label", "label_name", "suggested_label", "suggested_label_name"):
        assert result.table[column].to_pylist() == own.table[column].to_pylist()


def naive_log_densities(store: Path) -> tuple[list[str], Tensor, dict[str, Tensor]]:
    """Ids, labels and densities of a whole store at once."""
    opened = open_store(store)
    posteriors = fit_store_posteriors(opened, POSTERIORS, torch.float32)
    assert posteriors is not None
    assert posteriors.agree is not None
    assert posteriors.suspicion is not None
    shards = [opened.read_shard(shard) for shard in range(opened.num_shards)]
    ids = [each for each in shards for each in each.sample_ids]
    labels = torch.cat([each.labels for each in shards]).long()
    features = torch.cat([each.features for each in shards])
    densities = {}
    for name, rule, feature_map in (
        ("agree", posteriors.agree, posteriors.feature_map),
        ("suspicion", posteriors.suspicion, posteriors.suspicion_map),
    ):
        mapped = feature_map(features, Workspace())[:, : len(rule.densities.mean)]
        blocks = rule.densities.log_densities(mapped, labels, Workspace())
        found = torch.cat([block.double() for _, block in blocks])
        densities[name] = found * rule.choice.scale
    return ids, labels, densities


@pytest.mark.slow
def test_the_runs_of_a_sample_are_averaged(tmp_path: Path) -> None:
    plain = open_store(make_store(tmp_path / "plain", seed=1))
    shards = [plain.read_shard(shard) for shard in range(2)]
    features = torch.cat([each.features for each in shards])
    labels = torch.cat([each.labels for each in shards])
    noise = torch.randn(SAMPLES, 2, 8, generator=torch.Generator().manual_seed(3))
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        store_of(folder, features[:, None] + 0.2 * noise, labels, shard_size=SHARD)
    own = score(folders[0], tmp_path / "scores.parquet", *POSTERIORS)

    result = consensus_of(folders)

    for column in ("rmd", "suspicion", "agree"):
        np.testing.assert_allclose(
            numbers(result, column), numbers(own, column), rtol=1e-4, atol=1e-4, err_msg=column
        )


@pytest.mark.slow
def test_two_backbones_are_judged_by_the_mean_of_their_log_densities(tmp_path: Path) -> None:
    stores = [make_store(tmp_path / "one", seed=1), make_store(tmp_path / "two", seed=2, dim=12)]
    ids, labels, first = naive_log_densities(stores[0])
    _, _, second = naive_log_densities(stores[1])

    result = consensus_of(stores)

    assert result.table["sample_id"].to_pylist() == ids
    prior = log_class_prior(torch.from_numpy(np.bincount(labels))).numpy()
    agree = ((first["agree"] + second["agree"]) / 2).numpy()
    densities = (first["suspicion"] + second["suspicion"]) / 2
    sums = torch.zeros(3, 3, dtype=torch.float64)
    add_label_sums(SHARPNESS_OF_SUMS * densities + torch.from_numpy(prior), labels, sums)
    noise = fit_noise(
        densities, torch.from_numpy(prior), labels, sums, torch.ones(len(labels)), 1.0
    )
    assert noise is not None
    assert noise.wrong > 0.01
    transitions = noise.transitions_of(densities, labels, Workspace()).exp().numpy()
    posterior = (noise.scale * densities + torch.from_numpy(prior)).softmax(dim=1).numpy()
    for row, label in enumerate(labels.tolist()):
        weights = posterior[row] * transitions[row]
        wrong = weights.sum() - weights[label]
        others = np.delete(agree[row], label)
        joint = np.exp(agree[row] + prior - (agree[row] + prior).max())
        expected = {
            "suspicion": np.log(wrong / weights[label]),
            "p_wrong": wrong / weights.sum(),
            "agree": np.log((joint.sum() - joint[label]) / joint[label]),
            "label_margin": 2 * (others.max() - agree[row, label]),
        }
        for column, value in expected.items():
            assert numbers(result, column)[row] == pytest.approx(value, rel=2e-3, abs=2e-3), column
        likeliest = np.argsort(-posterior[row])
        for name, other in zip(("first", "second", "third"), likeliest, strict=True):
            assert result.table[f"{name}_label"][row].as_py() == other
            expected_p = posterior[row, other]
            assert numbers(result, f"p_{name}")[row] == pytest.approx(expected_p, abs=2e-3)
        weights[label] = 0
        assert result.table["suggested_label"][row].as_py() == weights.argmax()


def test_no_sample_looks_like_a_class_that_one_shared_sample_has(tmp_path: Path) -> None:
    labels = naive_log_densities(make_store(tmp_path / "all", 1))[1].tolist()
    owls = [row for row, label in enumerate(labels) if label == 2]
    rows = [row for row in range(SAMPLES) if labels[row] != 2 or row in owls[:40]]
    one = make_store(tmp_path / "one", 1, rows)
    two = make_store(tmp_path / "two", 2, [row for row in rows if row not in owls[1:]])

    result = consensus_of([one, two]).table

    alone = result["sample_id"].to_pylist().index(f"s{owls[0]}")
    assert [row for row, name in enumerate(result["label_name"].to_pylist()) if name == "owl"] == [
        alone
    ]
    for name in ("nearest_label_name", "suggested_label_name"):
        assert {*result[name].to_pylist()} <= {"cat", "dog", None}
    assert result["suspicion"].null_count == 1


def test_two_backbones_find_more_wrong_labels_by_densities_than_by_ranks_or_alone(
    tmp_path: Path,
) -> None:
    stores = [make_store(tmp_path / str(seed), seed) for seed in (1, 2)]
    wrong = np.arange(SAMPLES) % 13 == 0

    def auroc(file: ScoreFile, column: str) -> float:
        ranks = rankdata(numbers(file, column))
        pairs = wrong.sum() * (~wrong).sum()
        return float((ranks[wrong].sum() - wrong.sum() * (wrong.sum() + 1) / 2) / pairs)

    files = [score(store, store.with_suffix(".parquet"), "suspicion") for store in stores]
    worse, better = sorted(auroc(file, "suspicion") for file in files)

    by_densities = consensus_of(stores)
    by_ranks = consensus_of([store.with_suffix(".parquet") for store in stores])

    assert auroc(by_densities, "suspicion") > better + 0.01
    assert auroc(by_densities, "suspicion") > auroc(by_ranks, "suspicion") > worse + 0.01


@pytest.mark.parametrize("kind", ["features", "scores"])
def test_samples_are_matched_by_id_and_classes_by_name(tmp_path: Path, kind: str) -> None:
    rows = [row for row in reversed(range(SAMPLES)) if row not in {5, 600}]
    one = make_store(tmp_path / "one", 1, range(SAMPLES - 1))
    two = make_store(tmp_path / "two", 2, rows, names=("owl", "cat", "dog"))
    same = make_store(tmp_path / "same", 2, sorted(rows))
    inputs = [one, two, same]
    if kind == "scores":
        for store in inputs:
            score(store, store.with_suffix(".parquet"), *POSTERIORS)
        inputs = [store.with_suffix(".parquet") for store in inputs]

    shuffled, ordered = consensus_of(inputs[:2]), consensus_of([inputs[0], inputs[2]])

    ids = [f"s{row}" for row in range(SAMPLES - 1) if row not in {5, 600}]
    assert shuffled.table["sample_id"].to_pylist() == ids
    # The landmarks of suspicion depend on the order of the samples, the Gaussians do not.
    for column in ("label_name", "label", "nearest_label_name", "nearest_label"):
        assert shuffled.table[column].to_pylist() == ordered.table[column].to_pylist()
    assert shuffled.provenance.class_names == tuple(NAMES)
    first, second = shuffled.provenance.warnings
    assert f"2 samples of {inputs[0]} are not in every other input and left out: s5, s6" in first
    assert f"1 sample of {inputs[1]} is not in every other input and left out: s699" in second


def test_the_provenance_names_the_inputs_and_what_the_columns_mean(tmp_path: Path) -> None:
    stores = [make_store(tmp_path / str(seed), seed) for seed in (1, 2)]

    result = consensus_of(stores)
    write_scores(tmp_path / "consensus.parquet", result.table, result.provenance)

    provenance = read_scores(tmp_path / "consensus.parquet").provenance
    assert provenance.backbone == "backbone-1 + backbone-2"
    assert (provenance.dataset, provenance.fingerprint) == ("photos", "f")
    made = provenance.consensus
    assert made.mean_of == "log-densities"
    assert [each.name for each in made.inputs] == [str(store) for store in stores]
    filled = {
        name
        for name in result.table.column_names
        if result.table[name].null_count < SAMPLES and name not in {"sample_id", "percentile"}
    }
    assert {*made.columns} == {name for name in filled if "label_name" not in name} - {"label"}


def test_features_of_a_single_class_have_no_consensus_about_labels(tmp_path: Path) -> None:
    rows = [
        row
        for row, label in enumerate(naive_log_densities(make_store(tmp_path / "all", 1))[1])
        if label == 0
    ]
    stores = [make_store(tmp_path / str(seed), seed, rows) for seed in (1, 2)]

    with pytest.raises(DifficultyError, match="one class, cat"):
        consensus_of(stores)


def test_features_and_score_files_cannot_be_mixed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "one", seed=1)
    score(store, tmp_path / "scores.parquet", "rmd")

    with pytest.raises(ScoreFileError, match=r"one holds features and .*scores.parquet does not"):
        consensus_of([store, tmp_path / "scores.parquet"])
