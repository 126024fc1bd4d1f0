"""A job scores its dataset as the marks of another job have it."""

import io
import json

import numpy as np
import pytest

from api.jobs.marks import encode_marks
from api.jobs.store import SubmitLimits, submit
from api.jobs.stored_result import StoredResult
from difficulty_service.base.errors import CleaningError
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import SCHEMA, MarkedSample, to_table
from tests.api.worker.bench import Bench
from tests.factories import named
from tests.small_network import SMALL

KEEP, DROP = MarkedSample("", Mark.KEEP), MarkedSample("", Mark.DROP)
TO_CAT, TO_FOX = MarkedSample("", Mark.RELABEL, "cat"), MarkedSample("", Mark.RELABEL, "fox")


def run(
    bench: Bench, marks: dict[str, MarkedSample] | None, source: str | None = None
) -> StoredResult:
    """Runs a job on the photos with marks."""
    request = {"dataset": {"root": "pictures", "path": "photos"}, "backbone": SMALL}
    if source is not None:
        request["marks"] = source
    encoded = None
    if marks is not None:
        later = to_table(named(marks).samples.values())
        encoded = encode_marks(SCHEMA.empty_table(), later)
    submit(bench.engine, "", request, None, SubmitLimits(100, 3), encoded)
    return bench.finish(bench.claim_next())


def test_labels_follow_the_marks_and_dropped_images_are_gone(bench: Bench) -> None:
    marks = {"bird/03.png": TO_CAT, "bird/04.png": TO_FOX, "cat/05.png": DROP, "cat/06.png": KEEP}

    source = run(bench, None).prefix.split("/")[1]
    result = run(bench, marks, source)

    table = bench.table(result)
    known = json.loads(table.schema.metadata[b"difficulty"])
    said = f"Round 2: 2 relabelled, 1 dropped, 1 kept · {known['newly_doubtful']} newly doubtful"
    assert result.warnings[0] == f"{said}, by the marks of job {source}"
    rows = {row["sample_id"]: row for row in table.to_pylist()}
    assert len(rows) == result.num_samples == 39
    assert "cat/05.png" not in rows
    assert [(rows[each]["label_name"], rows[each]["mark"]) for each in marks if each in rows] == [
        *(("cat", "relabel"), ("fox", "relabel"), ("cat", "keep")),
    ]
    assert result.class_names == ("bird", "cat", "fox")
    assert any("the new class 'fox'" in warning for warning in result.warnings)
    with bench.artifacts.open(f"{result.prefix}/vectors.npy") as file:
        assert len(np.load(io.BytesIO(file.read()))) == 39


def test_a_job_whose_dataset_has_none_of_the_marked_images_says_so(bench: Bench) -> None:
    with pytest.raises(CleaningError, match="none of 1 marked sample is in the dataset") as caught:
        run(bench, {"elsewhere.png": DROP})

    assert caught.value.parameter == "marks"
