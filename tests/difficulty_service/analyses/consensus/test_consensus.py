"""Score files of several backbones become one by the mean of their ranks."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.stats import rankdata

from difficulty_service.analyses.consensus.consensus import consensus_of
from difficulty_service.base.errors import UnmatchedScores
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

NAMES = ("cat", "dog", "owl")


def numbers(file: ScoreFile, column: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = file.table[column].cast(pa.float64()).to_numpy()
    return values


def random_scores(path: Path, seed: int, **columns: Sequence[object]) -> Path:
    generator = np.random.default_rng(seed)
    usual = {
        "rmd": generator.normal(size=40).round(1),
        "suspicion": generator.normal(1, 1, size=40).round(1),
        "p_wrong": generator.uniform(size=40).astype(np.float32),
    }
    table = score_table([row % 3 for row in range(40)], NAMES, **usual | columns)
    write_scores(path, table, Provenance.of({"backbone": f"backbone-{seed}"}))
    return path


def test_score_files_are_averaged_by_rank(tmp_path: Path) -> None:
    paths = [random_scores(tmp_path / f"{seed}.parquet", seed) for seed in range(3)]
    files = [read_scores(path) for path in paths]

    result = consensus_of(paths)

    ranks = np.mean([(rankdata(numbers(file, "rmd")) - 1) / 39 for file in files], axis=0)
    np.testing.assert_allclose(numbers(result, "rmd"), ranks, atol=1e-6)
    np.testing.assert_allclose(
        numbers(result, "percentile"), (rankdata(numbers(result, "rmd")) - 1) / 39, atol=1e-6
    )
    signed = []
    for file in files:
        suspicion = numbers(file, "suspicion")
        border = (suspicion <= 0).sum() - 0.5
        signed.append((rankdata(suspicion) - 1 - border) / 39)
        assert ((signed[-1] > 0) == (suspicion > 0)).all()
    np.testing.assert_allclose(numbers(result, "suspicion"), np.mean(signed, axis=0), atol=1e-6)
    np.testing.assert_allclose(
        numbers(result, "p_wrong"),
        np.mean([numbers(file, "p_wrong") for file in files], axis=0),
        atol=1e-6,
    )
    assert not {"agree", "label_margin"} & {*result.table.column_names}
    assert set(result.provenance.consensus.columns) == {
        "rmd",
        "suspicion",
        "p_wrong",
    }


def test_the_class_that_most_files_suspect_wins_and_the_surest_file_between_two(
    tmp_path: Path,
) -> None:
    first = ["dog", "dog", None, *["owl"] * 37]
    second = ["owl", "owl", None, *["dog"] * 37]
    sure, unsure = [9.0, -9.0, 1.0, *[0.5] * 37], [0.0, 3.0, 1.0, *[0.5] * 37]
    paths = [
        random_scores(
            tmp_path / f"{number}.parquet",
            number,
            suspicion=pa.array(suspicion, pa.float64()),
            suggested_label_name=pa.array(names, pa.string()).dictionary_encode(),
        )
        for number, (names, suspicion) in enumerate(((first, sure), (second, unsure)))
    ]

    two = consensus_of(paths).table["suggested_label_name"].to_pylist()
    third = random_scores(
        tmp_path / "third.parquet",
        3,
        suggested_label_name=pa.array(second, pa.string()).dictionary_encode(),
    )
    three = consensus_of([*paths, third]).table["suggested_label_name"].to_pylist()

    assert two[:3] == ["dog", "owl", None]
    assert three[:3] == ["owl", "owl", None]


def test_a_number_that_one_file_lacks_is_missing_in_the_consensus(tmp_path: Path) -> None:
    values = [None if row == 3 else float(row) for row in range(40)]
    paths = [
        random_scores(tmp_path / "a.parquet", 0),
        random_scores(tmp_path / "b.parquet", 1, rmd=pa.array(values, pa.float64())),
    ]

    result = consensus_of(paths)

    assert result.table["rmd"].null_count == 1
    assert result.table["rmd"][3].as_py() is None
    assert result.provenance.num_scored == 39


def rename(path: Path, names: Sequence[str]) -> Path:
    return random_scores(
        path, 1, label_name=pa.array([names[row % 3] for row in range(40)]).dictionary_encode()
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: rename(path, ("cat", "owl", "owl")),
            "13 samples are labelled differently .* 's1': 'dog' and 'owl'",
        ),
        (
            lambda path: random_scores(path, 1, sample_id=[f"other{row}" for row in range(40)]),
            r"no sample is in all of .*\['s0'\] and \['other0'\]",
        ),
        (
            lambda path: random_scores(path, 1, sample_id=[f"s{row // 2}" for row in range(40)]),
            "has a sample id more than once",
        ),
    ],
    ids=["labels", "dataset", "ids"],
)
def test_files_that_do_not_fit_together_are_refused(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    first = random_scores(tmp_path / "first.parquet", 0)

    with pytest.raises(UnmatchedScores, match=message):
        consensus_of([first, make(tmp_path / "second.parquet")])
