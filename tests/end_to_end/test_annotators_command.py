"""Labels of several people, by the commands that a person types, up to the cleaned dataset."""

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.analysis("annotators")

Command = Callable[..., subprocess.CompletedProcess[str]]

SAMPLES, CLASSES = 300, np.array(["cat", "dog", "owl"])
RIGHT = np.arange(SAMPLES) % 3
GIVEN = np.where(np.arange(SAMPLES) % 30 == 0, (RIGHT + 1) % 3, RIGHT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Features with wrong given labels, and a table of rows by two annotators who are right."""
    features = np.random.default_rng(0).standard_normal((SAMPLES, 16)) + 4 * np.eye(3, 16)[RIGHT]
    ids = np.array([f"photo {row}" for row in range(SAMPLES)])
    np.savez(tmp_path / "vectors.npz", features=features, labels=CLASSES[GIVEN], ids=ids)
    with (tmp_path / "votes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sample_id", "annotator", "label"])
        for name in ("ann", "bob"):
            writer.writerows(zip(ids, [name] * SAMPLES, CLASSES[RIGHT], strict=True))
    return tmp_path


def test_the_consensus_becomes_a_cleaned_dataset(difficulty: Command, folder: Path) -> None:
    scores, consensus = folder / "scores.parquet", folder / "consensus.csv"
    difficulty("score", folder / "vectors.npz", "--out", scores)

    judged = difficulty(
        "annotators", folder / "vectors.npz", folder / "votes.csv", "--out", consensus
    )
    cleaned = difficulty("clean", scores, "--marks", consensus, "--out", folder / "cleaned.csv")

    assert judged.returncode == 0, judged.stderr
    assert "10 samples of 300 to relabel" in judged.stdout
    assert "Krippendorff's alpha of all labels 1.000" in judged.stdout
    assert cleaned.returncode == 0, cleaned.stderr
    with (folder / "cleaned.csv").open() as file:
        labels = {row["sample_id"]: row["label"] for row in csv.DictReader(file)}
    assert labels == {f"photo {row}": CLASSES[RIGHT[row]] for row in range(SAMPLES)}


def test_a_dataset_beside_its_features_is_no_score_file_to_clean_by(
    difficulty: Command, folder: Path
) -> None:
    pq.write_table(pa.table({"label": CLASSES[GIVEN]}), folder / "vectors.parquet")

    done = difficulty(
        *("annotators", folder / "vectors.npz", folder / "votes.csv", "--out", folder / "marks.csv")
    )

    assert done.returncode == 0, done.stderr
    assert f"to relabel: difficulty clean SCORES --marks {folder / 'marks.csv'}" in done.stdout


def test_a_score_file_takes_the_place_of_features(difficulty: Command, folder: Path) -> None:
    difficulty("score", folder / "vectors.npz", "--out", folder / "scores.parquet")

    done = difficulty(
        *("annotators", folder / "scores.parquet", folder / "votes.csv"),
        *("--out", folder / "consensus.parquet", "--sure", 0.9),
    )

    assert done.returncode == 0, done.stderr
    assert "10 samples of 300 to relabel" in done.stdout
    assert (folder / "consensus.annotators.parquet").exists()


def test_marks_of_people_are_counted_and_tell_how_far_to_trust(
    difficulty: Command, folder: Path
) -> None:
    lines = [f"photo {row},keep," for row in range(1, 20)]
    (folder / "marks.csv").write_text("\n".join(["sample_id,mark,label", *lines]))

    done = difficulty(
        *("annotators", folder / "vectors.npz", folder / "votes.csv"),
        *("--out", folder / "consensus.csv", "--marks", folder / "marks.csv"),
    )

    assert "by 19 verified samples, probabilities are taken to the power" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--out", "votes.csv"), 2, "would be overwritten"),
        (("--out", "consensus.xlsx"), 1, "use --out consensus.parquet"),
        (("--out", "c.csv", "--columns", "ann,bob"), 1, "no column 'ann'"),
        (("--out", "c.csv", "--sure", "2"), 2, "--sure"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    difficulty: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(folder)

    done = difficulty("annotators", "vectors.npz", "votes.csv", *options)

    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
