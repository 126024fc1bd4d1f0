"""What a round of review changed is told by the samples that both scores have."""

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.samples import ScoredSamples, to_samples
from difficulty_service.scoring.round_change import change_between
from tests.factories import score_table

Row = tuple[str, float, str | None]  # id, suspicion, mark


def samples_of(*rows: Row) -> ScoredSamples:
    ids, suspicion, marks = map(list, zip(*rows, strict=True))
    number = len(rows)
    table = score_table(
        [0] * number,
        ids=ids,
        rmd=[0.0] * number,
        nearest_label=[1] * number,
        label_margin=[0.0] * number,
        percentile=[0.0] * number,
        suspicion=suspicion,
        suggested_label=[1] * number,
    )
    table = table.append_column("mark", pa.array(marks, pa.string()).dictionary_encode())
    return to_samples(ScoreFile(table, Provenance()))


def test_only_undecided_samples_of_both_rounds_have_changed() -> None:
    before = samples_of(
        ("gone", 3.0, None),
        ("calms", 1.0, None),
        ("calms most", 2.0, None),
        ("stays", 1.0, None),
        ("was verified", None, "keep"),
        ("is kept", 4.0, None),
        ("rises", -1.0, None),
        ("rises most", -2.0, None),
    )
    after = samples_of(
        ("rises", 1.0, None),
        ("is new", 5.0, None),
        ("was verified", 5.0, None),
        ("rises most", 2.0, None),
        ("is kept", None, "keep"),
        ("calms", -1.0, None),
        ("stays", 1.0, None),
        ("calms most", -3.0, None),
    )

    change = change_between(before, after)

    assert after.ids.take(pa.array(change.newly_doubtful)).to_pylist() == ["rises most", "rises"]
    assert after.ids.take(pa.array(change.settled)).to_pylist() == ["calms most", "calms"]


@pytest.mark.parametrize("seed", range(5))
def test_the_change_is_that_of_a_comparison_sample_by_sample(seed: int) -> None:
    generator = np.random.default_rng(seed)

    def random_round() -> tuple[list[Row], ScoredSamples]:
        ids = generator.permutation(40)[:30]
        rows = [
            (str(each), float(generator.normal()), "keep" if generator.random() < 0.2 else None)
            for each in ids
        ]
        return rows, samples_of(*rows)

    (old, before), (new, after) = random_round(), random_round()
    known = {sample_id: (doubt, mark) for sample_id, doubt, mark in old}
    newly = [
        sample_id
        for sample_id, doubt, mark in new
        if mark is None
        and doubt > 0
        and sample_id in known
        and known[sample_id][0] <= 0
        and known[sample_id][1] is None
    ]

    found = after.ids.take(pa.array(change_between(before, after).newly_doubtful)).to_pylist()

    assert sorted(found) == sorted(newly)
