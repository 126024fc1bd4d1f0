"""`difficulty consensus` writes a score file that the other commands and the trainer read."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.store import create_store, open_store
from difficulty_service.scores.file import read_scores

pytestmark = pytest.mark.analysis("consensus")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]
Scored = tuple[Path, Done]


@pytest.fixture
def stores(scored: Scored, tmp_path: Path) -> tuple[Path, Path]:
    """The features of photographs, and noisier ones of another backbone."""
    first = open_store(scored[0] / "scores.features")
    second = create_store(
        tmp_path / "noisy.features",
        FeatureDescription.of({**first.description.to_json(), "backbone": "noisy"}),
    )
    generator = torch.Generator().manual_seed(0)
    for shard in range(first.num_shards):
        table = first.read_shard(shard)
        noise = torch.randn(table.features.shape, generator=generator)
        features = table.features + 0.1 * table.features.std() * noise
        second.write_shard(shard, replace(table, features=features), [])
    return first.folder, second.folder


@pytest.mark.long
def test_a_consensus_of_features_is_read_by_every_command_and_the_trainer(
    difficulty: Command, stores: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "consensus.parquet"
    votes = tmp_path / "votes.parquet"

    done = difficulty("consensus", *stores, "--out", out)

    assert done.returncode == 0, done.stderr
    assert "600 samples in" in done.stdout
    assert "by the mean log-densities of 2 inputs" in done.stdout
    table = read_scores(out).table
    doubted = sum(value > 0 for value in table["suspicion"].to_pylist())
    assert f"{doubted:,} have a label that is probably wrong" in done.stdout
    ids = table["sample_id"]
    pq.write_table(pa.table({"sample_id": ids, "flag": [n % 2 for n in range(len(ids))]}), votes)
    folder, run = tmp_path / "cleaned", tmp_path / "run"
    against = ("--against", votes, "--join", "sample_id", "--column", "flag")
    train = (
        *("train", "probe_quick", "--scores", out, "--out", run, "--device", "cpu", "--set"),
        *(f"data.train={stores[0]}", "--set", "data.test=", "--set", "training.epochs=1"),
        *("--set", "training.seeds=[0]", "--set", "loss.weights=label_probability"),
        *("--set", "regulariser.weights=scores", "--set", "regulariser.alpha=0.1"),
    )
    for words in (
        ("report", out, "--out", tmp_path / "report.html"),
        ("clean", out, "--drop", "suspicion > 0", "--out", folder, "--dry-run"),
        ("audit", out, *against, "--score-column", "suspicion"),
        ("compare-scores", out, stores[0].with_suffix(".parquet")),
        ("export", out, "--to", "cleanlab", "--out", tmp_path / "issues.csv"),
        train,
    ):
        done = difficulty(*words)
        assert done.returncode == 0, (words[0], done.stderr)


@pytest.mark.slow
def test_a_consensus_of_score_files_is_one_of_ranks(
    difficulty: Command, stores: tuple[Path, Path], tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}.parquet" for number in range(2)]
    for store, file in zip(stores, files, strict=True):
        assert difficulty("score", store, "--out", file).returncode == 0

    done = difficulty("consensus", *files, "--out", tmp_path / "consensus.csv")

    assert done.returncode == 0, done.stderr
    assert "by the mean ranks of 2 inputs" in done.stdout
    assert "probably wrong (suspicion above 0)" in done.stdout
    assert "agree" not in done.stdout
    result = read_scores(tmp_path / "consensus.csv")
    assert 0 <= min(result.table["rmd"].to_pylist()) < max(result.table["rmd"].to_pylist()) <= 1


@pytest.mark.parametrize(
    ("names", "out", "message"),
    [
        (["a.parquet"], "c.parquet", "at least two different inputs"),
        (["a.parquet", "a.parquet"], "c.parquet", "at least two different inputs"),
        (["a.parquet", "b.parquet"], "b.parquet", "would be overwritten"),
        (["a.parquet", "b.parquet"], "c.txt", "expected is .parquet"),
        (["a.parquet", "b.parquet"], "c.parquet", "there is no score file"),
    ],
)
def test_a_wrong_call_is_refused(
    difficulty: Command, tmp_path: Path, names: list[str], out: str, message: str
) -> None:
    done = difficulty("consensus", *(tmp_path / name for name in names), "--out", tmp_path / out)

    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / out).exists()
