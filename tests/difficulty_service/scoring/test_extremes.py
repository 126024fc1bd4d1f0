"""The hardest and the easiest samples of all tables that pass by."""

import numpy as np
import pyarrow as pa

from difficulty_service.scoring.extremes import Extremes


def make_scored(generator: np.random.Generator, rows: int) -> pa.Table:
    names = pa.array([f"class {index}" for index in generator.integers(0, 5, rows)])
    scores = pa.array(
        [None if row % 7 == 0 else float(generator.normal()) for row in range(rows)], pa.float64()
    )
    ids = pa.array([f"s{number}" for number in generator.integers(0, 1 << 40, rows)])
    labels = pa.array([0] * rows, pa.int32())
    columns = {"sample_id": ids, "label": labels, "label_name": names.dictionary_encode()}
    return pa.table({**columns, "rmd": scores})


def test_the_extremes_are_those_of_all_tables() -> None:
    generator = np.random.default_rng(0)
    tables = [make_scored(generator, rows) for rows in (40, 3, 90)]
    rows = [row for table in tables for row in table.to_pylist() if row["rmd"] is not None]
    ordered = sorted(rows, key=lambda row: -row["rmd"])
    extremes = Extremes(10)

    for table in tables:
        extremes.update(table)

    for actual, expected in (
        (extremes.hardest, ordered[:10]),
        (extremes.easiest, ordered[-10:]),
    ):
        assert actual.to_pylist() == [
            {key: row[key] for key in ("sample_id", "label_name", "rmd")} for row in expected
        ]


def test_without_scores_there_are_no_extremes() -> None:
    table = make_scored(np.random.default_rng(0), 1)
    extremes = Extremes(10)

    extremes.update(table)

    assert (len(extremes.hardest), len(extremes.easiest)) == (0, 0)
