"""Weights are joined to samples by id, and ids without a match are named."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import (
    ConfigError,
    ScoreFileError,
    TrainingError,
    UnmatchedScores,
)
from difficulty_service.scores.file import METADATA_KEY, open_scores, read_scores, write_scores
from tests.factories import write_score_file
from trainer.config import ScoreWeights
from trainer.weights.formula import WeightsDistribution, sample_weights
from trainer.weights.from_scores import weights_of_samples

SCORES = {"a.png": -2.0, "b.png": 0.5, "c.png": 1.0, "d.png": 4.0, "e.png": 9.0}
IDS = list(SCORES)
DIM = 16


def config(**options: object) -> ScoreWeights:
    return ScoreWeights(**options)  # type: ignore[arg-type]


def weights_of(
    ids: Sequence[str], path: Path, config: ScoreWeights, known_ids: Sequence[str] | None = None
) -> tuple[Tensor, WeightsDistribution]:
    with open_scores(path) as scores:
        return weights_of_samples(ids, scores, config, known_ids=known_ids)


def save_scores(
    path: Path, scores: dict[str, float | None], column: str = "rmd", **provenance: object
) -> Path:
    return write_score_file(path / "scores.parquet", scores, column, **provenance)


def test_weights_follow_the_ids_and_not_the_order_of_the_file(tmp_path: Path) -> None:
    shuffled = {name: SCORES[name] for name in ("d.png", "a.png", "e.png", "c.png", "b.png")}
    path = save_scores(tmp_path, shuffled)

    weights, distribution = weights_of(IDS, path, config())

    expected = sample_weights(torch.tensor(list(SCORES.values())))
    assert torch.equal(weights, expected)
    assert distribution.count == 5
    assert (distribution.missing, distribution.surplus) == (0, 0)


@pytest.mark.parametrize("name", ["scores.csv", "scores.jsonl"])
def test_scores_may_be_text(tmp_path: Path, name: str) -> None:
    scores = read_scores(save_scores(tmp_path, SCORES, feature_dim=16))
    write_scores(tmp_path / name, scores.table, scores.provenance)
    settings = config(normalise="per_dimension")

    weights, _ = weights_of(IDS, tmp_path / name, settings)

    expected, _ = weights_of(IDS, tmp_path / "scores.parquet", settings)
    assert torch.equal(weights, expected)


def test_samples_may_be_in_any_order(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)

    weights, _ = weights_of(IDS, path, config())
    backwards, _ = weights_of(IDS[::-1], path, config())

    assert torch.equal(backwards, weights.flip(0))


def test_the_recipe_chooses_how_scores_become_weights(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES, "knn")
    options = {"normalise": "zscore", "winsorise": 0.2, "score_temperature": 2.0, "c": 0.1}

    weights, _ = weights_of(IDS, path, config(column="knn", **options))

    expected = sample_weights(torch.tensor(list(SCORES.values())), **options)  # type: ignore[arg-type]
    assert torch.equal(weights, expected)


def test_the_dimension_of_the_features_comes_from_the_file(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES, feature_dim=DIM)

    weights, _ = weights_of(IDS, path, config(normalise="per_dimension"))

    scores = torch.tensor(list(SCORES.values()))
    assert torch.equal(weights, sample_weights(scores, normalise="per_dimension", dim=DIM))


def test_per_dimension_needs_a_score_file_with_the_dimension_of_the_features(
    tmp_path: Path,
) -> None:
    path = save_scores(tmp_path, SCORES)

    with pytest.raises(ConfigError, match="does not say how many numbers a feature vector has"):
        weights_of(IDS, path, config(normalise="per_dimension"))


def test_held_out_samples_neither_raise_an_error_nor_change_the_weights(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)

    weights, distribution = weights_of(IDS[:3], path, config(), known_ids=IDS)

    assert torch.equal(weights, sample_weights(torch.tensor([-2.0, 0.5, 1.0])))
    assert distribution.surplus == 0


def test_training_samples_without_a_score_are_counted_and_named(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)
    ids = ["v.png", *IDS, "w.png", "x.png", "y.png"]

    with pytest.raises(UnmatchedScores) as caught:
        weights_of(ids, path, config())

    message = str(caught.value)
    assert (
        "4 of 9 training samples are not in it, for example 'v.png', 'w.png', 'x.png';" in message
    )
    assert 'regulariser.missing = "mean"' in message
    assert "belong to no sample" not in message


def test_scores_without_a_sample_are_counted_and_named(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)

    with pytest.raises(UnmatchedScores, match=r"2 of its scores belong to no sample of the datas"):
        weights_of(IDS[:2], path, config(), known_ids=IDS[:3])


def test_one_message_shows_ids_of_both_sides(tmp_path: Path) -> None:
    path = save_scores(tmp_path, {**SCORES, "train/f.png": 1.0})

    with pytest.raises(UnmatchedScores, match=r"example 'f\.png'; .* example 'train/f\.png'; "):
        weights_of([*IDS, "f.png"], path, config())


@pytest.mark.parametrize("empty", [None, math.nan])
def test_a_score_without_a_value_is_none(tmp_path: Path, empty: float | None) -> None:
    path = save_scores(tmp_path, {**SCORES, "c.png": empty})

    with pytest.raises(UnmatchedScores, match="1 of 5 training samples have no value in 'rmd', fo"):
        weights_of(IDS, path, config())


def test_missing_scores_may_take_the_mean_weight(tmp_path: Path) -> None:
    path = save_scores(tmp_path, {**SCORES, "c.png": None, "no sample.png": 100.0})

    weights, distribution = weights_of([*IDS, "z.png"], path, config(missing="mean"))

    known = sample_weights(torch.tensor([-2.0, 0.5, 4.0, 9.0]))
    expected = torch.stack([*known[:2], known.mean(), *known[2:], known.mean()])
    torch.testing.assert_close(weights, expected, rtol=1e-12, atol=0)
    assert (distribution.missing, distribution.surplus) == (2, 1)
    assert distribution.count == 6


@pytest.mark.parametrize("missing", ["error", "mean"])
def test_a_file_of_another_dataset_is_refused(tmp_path: Path, missing: str) -> None:
    path = save_scores(tmp_path, SCORES)

    with pytest.raises(UnmatchedScores, match="2 of 2 training samples are not in it") as caught:
        weights_of(["1", "2"], path, config(missing=missing))

    assert "regulariser.missing" not in str(caught.value)


def test_a_file_without_rows_has_no_score_column(tmp_path: Path) -> None:
    path = save_scores(tmp_path, {})

    with pytest.raises(ConfigError, match=r"'rmd' is empty .* choose one of \[\]"):
        weights_of(IDS, path, config(missing="mean"))


@pytest.mark.parametrize("column", ["label", "sample_id"])
def test_a_column_that_holds_no_scores_is_named_with_those_that_do(
    tmp_path: Path, column: str
) -> None:
    path = save_scores(tmp_path, SCORES)

    with pytest.raises(ConfigError, match=rf"'{column}' is not a column .* one of \['rmd'\]"):
        weights_of(IDS, path, config(column=column))


def test_a_column_that_was_not_computed_is_named_with_its_scorer(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)

    with pytest.raises(ConfigError, match=r"scores.parquet has no knn; score with scorers='knn'$"):
        weights_of(IDS, path, config(column="knn"))


def test_a_misspelt_column_is_followed_by_the_one_that_is_meant(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES, "kmeans")

    with pytest.raises(ConfigError, match=r"no column 'kmean'; did you mean 'kmeans'\?"):
        weights_of(IDS, path, config(column="kmean"))


def test_a_custom_column_can_be_used(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)
    table = pq.read_table(path)
    metadata = {METADATA_KEY: table.schema.metadata[METADATA_KEY]}
    uncertainty = pa.array([5.0, 4.0, 3.0, 2.0, 1.0], pa.float32())
    own = table.append_column("uncertainty", uncertainty).replace_schema_metadata(metadata)
    pq.write_table(own, path)

    weights, _ = weights_of(IDS, path, config(column="uncertainty"))

    assert (weights.diff() < 0).all()


def test_two_scores_for_one_sample_are_named(tmp_path: Path) -> None:
    path = save_scores(tmp_path, SCORES)
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table.slice(1, 1)]), path)

    with pytest.raises(ScoreFileError, match=r"more than one score for 1 sample ids, .*'b\.png'"):
        weights_of(IDS, path, config())


def test_an_infinite_score_is_counted(tmp_path: Path) -> None:
    path = save_scores(tmp_path, {**SCORES, "c.png": math.inf})

    with pytest.raises(TrainingError, match="1 of 5 scores are NaN or infinite"):
        weights_of(IDS, path, config(missing="mean"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScoreFileError, match="there is no score file"):
        weights_of(IDS, tmp_path / "none.parquet", config())


@pytest.mark.slow
def test_a_file_of_many_shuffled_rows_is_joined_correctly(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    order = generator.permutation(20_000)
    path = save_scores(tmp_path, {f"{number:06}.png": float(number) for number in order})

    ids = [f"{number:06}.png" for number in range(20_000)]
    weights, _ = weights_of(ids, path, config(winsorise=0.0))

    assert (weights.diff() > 0).all()
