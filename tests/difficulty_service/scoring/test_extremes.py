"""The hardest, easiest and most doubtful samples of all tables that pass by."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.scoring.extremes import Extremes


def make_scored(generator: np.random.Generator, rows: int, *, scored: bool = True) -> pa.Table:
    def numbers() -> pa.Array:
        values = [None if row % 7 == 0 else float(generator.normal()) for row in range(rows)]
        return pa.array(values if scored else [None] * rows, pa.float64())

    def names() -> pa.Array:
        indices = generator.integers(0, 5, rows)
        return pa.array([f"class {index}" for index in indices]).dictionary_encode()

    return pa.table(
        {
            "sample_id": pa.array(
                [f"s{number}" for number in generator.integers(0, 1 << 40, rows)]
            ),
            "label": pa.array([0] * rows, pa.int32()),
            "label_name": names(),
            "rmd": numbers(),
            "nearest_label_name": names(),
            "label_margin": numbers(),
        }
    )


def test_the_extremes_are_those_of_all_tables() -> None:
    generator = np.random.default_rng(0)
    tables = [make_scored(generator, rows) for rows in (40, 3, 90)]
    rows = [row for table in tables for row in table.to_pylist()]
    by_rmd = sorted((row for row in rows if row["rmd"] is not None), key=lambda row: -row["rmd"])
    compared = [row for row in rows if row["label_margin"] is not None]
    by_margin = sorted(compared, key=lambda row: -row["label_margin"])
    extremes = Extremes(10)

    for table in tables:
        extremes.update(table)

    for actual, expected in (
        (extremes.hardest, by_rmd[:10]),
        (extremes.easiest, by_rmd[-10:]),
        (extremes.doubtful, by_margin[:10]),
    ):
        assert actual.to_pylist() == [
            {key: row[key] for key in actual.column_names} for row in expected
        ]
    assert extremes.hardest.column_names == ["sample_id", "label_name", "rmd"]
    assert extremes.doubtful.column_names == [
        *("sample_id", "label_name", "nearest_label_name", "label_margin"),
    ]


def test_only_samples_that_look_more_like_another_class_are_doubtful() -> None:
    table = make_scored(np.random.default_rng(0), 40)
    positive = sum((margin or 0) > 0 for margin in table["label_margin"].to_pylist())
    extremes = Extremes(40)

    extremes.update(table)

    assert 0 < positive < 34
    assert len(extremes.doubtful) == positive
    assert min(extremes.doubtful["label_margin"].to_pylist()) > 0


def test_without_scores_there_are_no_extremes() -> None:
    extremes = Extremes(10)

    extremes.update(make_scored(np.random.default_rng(0), 10, scored=False))

    assert [len(extremes.hardest), len(extremes.easiest), len(extremes.doubtful)] == [0, 0, 0]


def test_doubtful_samples_go_by_their_suspicion_where_that_is_the_evidence() -> None:
    table = make_scored(np.random.default_rng(0), 40)
    table = table.append_column("suspicion", pc.negate(table["label_margin"]))
    table = table.append_column("suggested_label_name", table["nearest_label_name"])
    extremes = Extremes(5, "suspicion")

    extremes.update(table)

    values = [row["suspicion"] for row in table.to_pylist() if row["suspicion"] is not None]
    assert extremes.doubtful["suspicion"].to_pylist() == sorted(values, reverse=True)[:5]
    assert extremes.doubtful.column_names == [
        *("sample_id", "label_name", "suggested_label_name", "suspicion"),
    ]
