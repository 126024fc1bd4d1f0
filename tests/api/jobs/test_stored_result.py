"""The result of a job in the database: its text, and what is wrong with a damaged one."""

import json

import pytest

from api.jobs.store import encode
from api.jobs.stored_result import StoredResult
from difficulty_service.bodies.jobs import JobResult
from tests.api.stored_results import stored_result

WRITTEN = (
    '{"class_names":["cat","dog"],"num_bad_images":0,"num_doubtful":0,"num_duplicates":0,'
    '"num_samples":10,"num_scored":10,"num_skipped":0,"prefix":"jobs/x/a1","scores_bytes":3,'
    '"scores_sha256":"' + "0" * 64 + '","warnings":["one \\u00fc"]}'
)
"""What version 0.1.0 wrote before results were a class."""


def test_the_text_of_a_result_is_as_ever() -> None:
    result = stored_result("jobs/x/a1", warnings=["one \u00fc"])

    assert encode(result.to_json()) == WRITTEN
    assert StoredResult.of(json.loads(WRITTEN)) == result


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"num_scored": None}, r"has None as num_scored: .*valid integer"),
        ({"colour": "red"}, r"has 'red' as colour: extra inputs are not permitted"),
    ],
)
def test_a_result_with_another_value_is_refused_by_name(
    changes: dict[str, object], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        stored_result(**changes)  # type: ignore[arg-type]


def test_a_result_that_lacks_a_key_is_refused_by_name() -> None:
    values = json.loads(WRITTEN)
    del values["prefix"]

    with pytest.raises(ValueError, match=r"lacks the keys \['prefix'\]"):
        StoredResult.of(values)


def test_the_folder_of_the_files_and_their_size_are_kept_from_the_client() -> None:
    own = set(StoredResult.model_fields) - set(JobResult.model_fields)

    assert own == {"prefix", "stored_bytes"}
