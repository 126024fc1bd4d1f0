"""The record of a run states its loss, its entropy term and the source of the weights."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.base.checksums import load_checked
from difficulty_service.base.errors import ConfigError, TrainingError
from difficulty_service.base.tables import open_parquet
from difficulty_service.scores import file as scores_file
from difficulty_service.scores.file import read_score_schema
from tests.factories import write_score_file
from tests.small_runs import RunRecorder, run
from trainer.config import Recipe, ScoreWeights
from trainer.data import open_splits
from trainer.runs.evaluate import load_model

MakeRecipe = Callable[..., Recipe]


@pytest.fixture
def save_scores(probe_recipe: MakeRecipe, tmp_path: Path) -> Callable[..., Path]:
    """Writes a score for each training and validation sample, with some provenance."""

    def save(**provenance: object) -> Path:
        ids = open_splits(probe_recipe().data, 0, torch.device("cpu")).all_ids
        scores = {sample_id: float(number) for number, sample_id in enumerate(ids)}
        return write_score_file(tmp_path / "scores.parquet", scores, **provenance)

    return save


def record_of(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = load_checked((folder / "seed-0" / "objective.json").read_text())
    return values


def test_a_plain_run_records_its_loss_with_every_constant(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    run(probe_recipe(loss={"name": "adafocal", "rate": 2.0}), tmp_path)

    record = record_of(tmp_path)

    constants = {"num_bins": 15, "first_gamma": 1.0, "rate": 2.0, "switch": 0.2, "limits": [-2, 20]}
    assert record["loss"] == {"name": "adafocal", "constants": constants}
    assert (record["alpha"], record["weights"], record["reduction"]) == (0, "none", "mean")
    assert record["sentence"] == (
        "adafocal (num_bins = 15, first_gamma = 1, rate = 2, switch = 0.2, limits = [-2, 20]), "
        "without an entropy term."
    )
    assert "distribution" not in record


def test_a_run_weighed_by_scores_differs_from_one_without_by_name(
    probe_recipe: MakeRecipe, save_scores: Callable[..., Path], tmp_path: Path
) -> None:
    scores = save_scores(backbone="builtin", fingerprint="f00d", reliable=True)
    by_scores = {"alpha": 0.3, "weights": "scores", "scores": str(scores)}
    run(probe_recipe(regulariser={"alpha": 0.3}), tmp_path / "constant")
    run(probe_recipe(regulariser=by_scores), tmp_path / "weighted")

    constant, weighted = record_of(tmp_path / "constant"), record_of(tmp_path / "weighted")

    assert (constant["weights"], weighted["weights"]) == ("constant", "scores")
    assert weighted["scores"] | {"shrinkage": None} == {
        "file": str(scores),
        "sha256": hashlib.sha256(scores.read_bytes()).hexdigest(),
        "column": "rmd",
        "scorer": "rmd",
        "reliable": True,
        "dataset": None,
        "fingerprint": "f00d",
        "backbone": "builtin",
        "weights_sha256": None,
        "feature_dim": None,
        "shrinkage": None,
    }
    assert weighted["formula"]["score_temperature"] == 0.7
    saved = load_checked((tmp_path / "weighted" / "seed-0" / "weights.json").read_text())
    assert weighted["distribution"] == saved
    assert sum(saved["histogram"]) == saved["count"] == 72
    assert "minus 0.3 times the entropy" in constant["sentence"]
    assert f"weights from column rmd of {scores} (normalise = minmax" in weighted["sentence"]


def test_unreliable_scores_are_refused_unless_they_are_allowed_by_name(
    probe_recipe: MakeRecipe, save_scores: Callable[..., Path], tmp_path: Path
) -> None:
    by_scores = {"alpha": 0.3, "weights": "scores", "scores": str(save_scores(reliable=False))}

    with pytest.raises(TrainingError, match=r'unreliable.*set regulariser.unreliable = "allow"'):
        run(probe_recipe(regulariser=by_scores), tmp_path / "refused")
    run(probe_recipe(regulariser=by_scores | {"unreliable": "allow"}), tmp_path / "allowed")

    assert not (tmp_path / "refused").exists()
    assert record_of(tmp_path / "allowed")["scores"]["reliable"] is False


def test_alpha_zero_with_weights_by_scores_trains_the_plain_loss(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    plain = probe_recipe()
    swept = plain.model_copy(update={"regulariser": ScoreWeights()})

    run(plain, tmp_path / "plain")
    run(swept, tmp_path / "swept")

    one, other = (tmp_path / name / "seed-0" / "model.safetensors" for name in ("plain", "swept"))
    assert one.read_bytes() == other.read_bytes()
    assert record_of(tmp_path / "swept") == record_of(tmp_path / "plain")
    assert load_model(tmp_path / "swept" / "seed-0", "cpu").recipe == swept


@pytest.mark.parametrize(
    ("trust", "sentence"),
    [
        (
            {"weights": "label_probability"},
            "cross_entropy, without an entropy term; all of it times the probability that the "
            "label is right, from {scores}, divided by the mean.",
        ),
        (
            {"targets": "posterior"},
            "cross_entropy, without an entropy term; the loss is its mean over the given label "
            "and the suggested one, by their probabilities in {scores}.",
        ),
    ],
)
def test_a_run_that_doubts_labels_records_which_and_how_far(
    probe_recipe: MakeRecipe,
    locations: dict[str, str],
    tmp_path: Path,
    trust: dict[str, str],
    sentence: str,
) -> None:
    scores = locations["SCORES"]
    run(probe_recipe(loss=trust | {"scores": scores}), tmp_path)

    record = record_of(tmp_path)

    assert record["sentence"] == sentence.format(scores=scores)
    labels = record["labels"]
    everything = {"weights": "constant", "targets": "labels", "missing": "error"} | trust
    assert {key: labels[key] for key in everything} == everything
    assert labels["scores"]["scorer"] == "suspicion"
    assert 10 < labels["beliefs"]["more_likely_wrong"] < 24
    assert labels["beliefs"]["mean_probability"] == pytest.approx(0.625, abs=0.05)


def test_a_run_that_doubts_labels_needs_a_score_file(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no score file is named"):
        run(probe_recipe(loss={"weights": "label_probability"}), tmp_path / "run")

    assert not (tmp_path / "run").exists()


def test_a_run_resumes_with_a_copy_of_the_scores_and_not_with_others(
    probe_recipe: MakeRecipe, locations: dict[str, str], tmp_path: Path
) -> None:
    def recipe(scores: str | Path) -> Recipe:
        return probe_recipe(loss={"weights": "label_probability", "scores": str(scores)})

    copy = tmp_path / "copy.parquet"
    copy.write_bytes(Path(locations["SCORES"]).read_bytes())
    run(recipe(locations["SCORES"]), tmp_path / "whole")
    run(recipe(locations["SCORES"]), tmp_path / "run", RunRecorder(stop_after=4))

    with pytest.raises(TrainingError, match=r"another run: .*supervision"):
        run(recipe(locations["OTHER_LABEL_SCORES"]), tmp_path / "run", resume=True)
    assert run(recipe(copy), tmp_path / "run", resume=True)

    models = [tmp_path / name / "seed-0" / "model.safetensors" for name in ("whole", "run")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_a_run_opens_the_file_of_its_weights_labels_and_order_once_and_reads_few_columns(
    probe_recipe: MakeRecipe,
    locations: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = locations["SCORES"]
    opened: list[Path] = []
    used: set[str] = set()

    @contextmanager
    def counted(path: Path) -> Iterator[pq.ParquetFile]:
        opened.append(path)
        with open_parquet(path) as file:
            read = file.read

            def noted(columns: list[str]) -> pa.Table:
                used.update(columns)
                return read(columns=columns)

            monkeypatch.setattr(file, "read", noted)
            yield file

    monkeypatch.setattr(scores_file, "open_parquet", counted)
    recipe = probe_recipe(
        regulariser={"alpha": 0.3, "weights": "scores", "scores": scores},
        loss={"weights": "label_probability", "scores": scores},
        sampling={"order": "easy_first", "scores": scores},
    )

    run(recipe, tmp_path)

    assert opened == [Path(scores)]
    assert {"rmd", "p_wrong"} <= used
    assert "knn" not in used
    assert "knn" in read_score_schema(Path(scores)).names
    record = record_of(tmp_path)
    origins = record["scores"], record["labels"]["scores"], record["order"]["scores"]
    assert {origin["sha256"] for origin in origins} == {
        hashlib.sha256(Path(scores).read_bytes()).hexdigest()
    }
