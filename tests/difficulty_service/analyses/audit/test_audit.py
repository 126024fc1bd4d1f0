"""Scores joined with another table and compared with one of its columns."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.analyses.audit.audit import Audit, AuditOptions, audit
from difficulty_service.base.errors import AuditError, DatasetError
from difficulty_service.scores.agreement import ErrorRateByBin, FlagAgreement, RankAgreement
from difficulty_service.scores.compared_values import choose_kind, disagreement, label_numbers
from difficulty_service.scores.joined_files import read_columns
from tests.factories import score_table

NAMES = ("ant", "bee", "cat")
LABELS = [0, 1, 2, 0, 1, 2]


def six_scores(ids: list[str] | None = None) -> pa.Table:
    """Six samples, the last the hardest."""
    ids = ids or [str(row) for row in range(6)]
    return score_table(LABELS, NAMES, ids, rmd=[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0])


def compare(column: object, kind: str | None = None, num_bins: int = 20) -> Audit:
    against = pa.table({"index": list(range(6)), "said": column})
    options = AuditOptions(join="index", column="said", kind=kind, num_bins=num_bins)
    return audit(six_scores(), against, options)


def test_numbers_are_compared_by_rank() -> None:
    result = compare([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])

    assert result.options.kind == "rank"
    assert isinstance(result.agreement, RankAgreement)
    assert result.agreement.spearman == pytest.approx(1)


@pytest.mark.parametrize("kind", [pa.list_(pa.int16()), pa.list_(pa.float64(), 3)])
def test_votes_are_compared_by_their_entropy_for_any_number_of_votes(kind: pa.DataType) -> None:
    votes = [[9, 0, 0], [9, 1, 0], [8, 2, 0], [7, 3, 0], [35, 20, 5], [1, 1, 1]]

    result = compare(pa.array(votes, kind))

    assert result.options.kind == "rank"
    assert result.meaning == "entropy in nats"
    assert isinstance(result.agreement, RankAgreement)
    assert result.agreement.spearman == pytest.approx(1)


@pytest.mark.parametrize(
    "column",
    [
        [False, False, False, False, True, True],
        pa.array([0, 1, 2, 0, 2, 0], pa.int8()),
        ["ant", "bee", "cat", "ant", "cat", "dog"],
        pa.array(["ant", "bee", "cat", "ant", "cat", "dog"]).dictionary_encode(),
    ],
)
def test_booleans_and_labels_that_differ_flag_samples(column: object) -> None:
    result = compare(column)

    assert result.options.kind == "flag"
    assert isinstance(result.agreement, FlagAgreement)
    assert result.agreement.num_flagged == 2
    assert result.agreement.auroc == 1


def test_zeros_and_ones_flag_samples_of_more_than_two_classes() -> None:
    result = compare([0, 0, 0, 0, 1, 1])

    assert result.meaning == "where it is 1"
    assert isinstance(result.agreement, FlagAgreement)
    assert result.agreement.num_flagged == 2
    assert result.agreement.auroc == 1


def test_zeros_and_ones_are_the_labels_of_two_classes() -> None:
    labels, names = np.array([0, 1, 1, 0]), pa.chunked_array([["cat", "dog", "dog", "cat"]])

    differs = disagreement(pa.chunked_array([[0, 1, 0, 0]]), labels, names, "x")

    assert differs.numbers.tolist() == [0, 0, 1, 0]


def test_integers_beyond_the_labels_are_numbers() -> None:
    assert compare([10, 20, 30, 40, 50, 60]).options.kind == "rank"


@pytest.mark.parametrize(
    "column",
    [
        [False, False, False, False, False, True],
        [0, 1, 2, 0, 1, 0],
        ["ant", "bee", "cat", "ant", "bee", "ant"],
        [[2.0, -1, 0], [0.0, 3, 0], [-3, -2, -1.0], [9, 0, 0.0], [0, 1, 0.5], [1, 0, 0.0]],
    ],
)
def test_predictions_give_an_error_rate_by_bin(column: object) -> None:
    result = compare(column, kind="error-rate", num_bins=3)

    assert isinstance(result.agreement, ErrorRateByBin)
    np.testing.assert_allclose(result.agreement.error_rates, [0, 0, 0.5])


def test_samples_without_a_row_a_score_or_a_value_are_excluded_and_counted() -> None:
    ids = [str(row) for row in range(10)]
    values = [None, np.nan, *range(2, 10)]
    scores = score_table([0] * 10, ids=ids, rmd_loo=values)
    against = pa.table({"id": [*ids[:9], "x", "y", None], "votes": [*range(8), None, 0, 0, 0]})

    result = audit(scores, against, AuditOptions("id", "votes", "rank", score_column="rmd_loo"))

    assert (result.num_scores, result.num_rows, result.num_joined) == (10, 12, 9)
    assert (result.num_without_score, result.num_without_value) == (2, 1)
    assert isinstance(result.agreement, RankAgreement)
    assert result.agreement.num_samples == 6
    assert result.lines()[0] == "rmd_loo against votes (as it is), rank"
    assert result.lines()[2:] == [
        "left out: 1 samples have no row in the other table",
        "left out: 3 rows of the other table have no sample",
        "left out: 2 samples have no score",
        "left out: 1 samples have no value in votes",
    ]


def test_rows_are_joined_by_id_in_any_order() -> None:
    order = [3, 0, 5, 1, 4, 2]
    against = pa.table({"index": order, "votes": [float(row) for row in order]})

    result = audit(six_scores(), against, AuditOptions("index", "votes"))

    assert isinstance(result.agreement, RankAgreement)
    assert result.agreement.spearman == pytest.approx(1)


@pytest.mark.parametrize("repeated", ["scores", "other"])
def test_an_id_that_occurs_twice_is_refused_with_an_example(repeated: str) -> None:
    ids = {"scores": [*"abcdef"], "other": [*"abcdef"]}
    ids[repeated][1] = "a"
    against = pa.table({"id": ids["other"], "votes": [1.0] * 6})

    with pytest.raises(AuditError, match=r"1 values occur more than once, such as \['a'\]"):
        audit(six_scores(ids["scores"]), against, AuditOptions("id", "votes"))


def test_keys_that_are_row_numbers_raise_an_error_with_the_remedy() -> None:
    scores = six_scores([f"train.parquet#{row}" for row in range(6)])
    against = pa.table({"index": list(range(6)), "votes": [1.0] * 6})

    with pytest.raises(AuditError, match=r"train\.parquet#0.*'0'.*id_column='index'"):
        audit(scores, against, AuditOptions("index", "votes"))


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ([*"abcabc"], "rank", "column said is string, but a rank needs numbers"),
        ([*"yynnyn"], "flag", "no value of column said is a class name"),
        ([0.5] * 6, "flag", "column said is double, but a flag or an error is a boolean"),
        ([[1.0, -1.0]] * 6, "rank", "column said holds negative numbers"),
        ([[1.0], [1.0, 2.0]] * 3, "rank", r"lists of column said have lengths \[1, 2\]"),
        ([["a"]] * 6, "rank", "not lists of numbers"),
        ([{"a": 1}] * 6, None, "column said is struct"),
        ([1.0] * 6, "order", "kind 'order' is unknown; choose one of rank, flag, error-rate"),
    ],
)
def test_a_column_that_cannot_be_compared_is_refused_by_name(
    column: object, kind: str | None, message: str
) -> None:
    with pytest.raises(AuditError, match=message):
        compare(column, kind=kind)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (AuditOptions("index", "votes", score_column="knn"), "the score file has no knn; "),
        (AuditOptions("row", "votes"), "the other table has no column row; its columns are index"),
    ],
)
def test_a_missing_column_is_named_with_the_existing_columns(
    options: AuditOptions, message: str
) -> None:
    against = pa.table({"index": list(range(6)), "votes": [1.0] * 6})

    with pytest.raises(AuditError, match=message):
        audit(six_scores(), against, options)


def test_columns_of_several_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    for number in (2, 1):
        table = pa.table({"index": [number], "label": [7], "image": [b"bytes"]})
        pq.write_table(table, tmp_path / f"train_{number}.parquet")

    table = read_columns(str(tmp_path / "train_*.parquet"), ["index", "label"])

    assert table.to_pydict() == {"index": [1, 2], "label": [7, 7]}


def test_an_id_of_a_csv_file_can_keep_its_zeros(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("id,wrong\n007,true\n010,false\n")

    table = read_columns(str(tmp_path / "votes.csv"), ["id", "wrong"], text_columns=["id"])

    assert table.to_pydict() == {"id": ["007", "010"], "wrong": [True, False]}


def test_a_file_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "votes.ods").write_bytes(b"not a table")

    with pytest.raises(AuditError, match=r"votes\.ods' is not a table"):
        read_columns(str(tmp_path / "votes.ods"), ["id"])
    with pytest.raises(DatasetError, match="no file matches"):
        read_columns(str(tmp_path / "*.csv"), ["id"])


def test_real_votes_and_real_predictions_are_read_and_compared(shared: Path) -> None:
    votes = read_columns(f"{shared}/data/cifar10_test.parquet", ["index", "label", "human_counts"])
    outputs = read_columns(
        f"{shared}/data/cifar10_test_model_outputs.parquet", ["index", "logits_vgg_15_BN_64"]
    )
    labels = votes["label"].cast(pa.int32())
    counts = np.stack(votes["human_counts"].to_numpy())
    scores = pa.table(
        {
            "sample_id": votes["index"].cast(pa.string()),
            "label": labels,
            "label_name": labels.cast(pa.string()),
            "rmd": 1 - counts.max(axis=1) / counts.sum(axis=1),
        }
    )

    entropy = audit(scores, votes, AuditOptions("index", "human_counts"))
    errors = audit(scores, outputs, AuditOptions("index", "logits_vgg_15_BN_64", "error-rate"))

    assert isinstance(entropy.agreement, RankAgreement)
    assert entropy.agreement.spearman > 0.99
    assert isinstance(errors.agreement, ErrorRateByBin)
    assert 0.02 < errors.agreement.error_rate < 0.1
    assert errors.agreement.error_rates[-1] > 3 * errors.agreement.error_rates[0]


def test_numbers_are_compared_with_classes_of_that_name() -> None:
    labels, names = np.array([0, 1, 2, 1]), pa.chunked_array([["3", "40", "5000", "40"]])
    column = pa.chunked_array([[3, 5000, 5000, 40]])
    votes = pa.chunked_array([[[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]])

    numbers = label_numbers(labels, names)

    assert choose_kind(column, numbers) == "flag"
    assert disagreement(column, labels, names, "x").numbers.tolist() == [0, 1, 0, 0]
    assert disagreement(votes, labels, names, "x").numbers.tolist() == [1, 0, 0, 1]
    small = pa.chunked_array([["1", "2", "3", "2"]])
    assert disagreement(votes, labels, small, "x").numbers.tolist() == [1, 1, 1, 1]
