"""Marks are stored per owner, all together or not at all."""

import pytest
from sqlalchemy import Engine

from api.jobs.marks import MarkedMeanwhile, SampleMark, list_marks, marks_of_rows, set_marks
from api.jobs.store import SubmitLimits, begin_deletion, end_deletion, request_cancel, submit
from difficulty_service.cleaning.marks import Mark

KEEP = SampleMark(4, "a/4.png", Mark.KEEP)
RELABEL = SampleMark(2, "é/2.png", Mark.RELABEL, "dog")


@pytest.fixture
def job(engine: Engine) -> str:
    """Id of a job."""
    return submit(engine, "", {"dataset": {}}, None, SubmitLimits(5, 1))[0].id


def test_marks_are_listed_in_the_order_of_the_rows(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP, 2: RELABEL}, {})

    marks = list_marks(engine, "me", job)

    assert [(mark.row, mark.sample_id, mark.decision) for mark in marks] == [
        (2, "é/2.png", (Mark.RELABEL, "dog")),
        (4, "a/4.png", (Mark.KEEP, None)),
    ]
    assert all(mark.at > 1.7e9 for mark in marks)


def test_a_later_mark_replaces_an_earlier_one_and_none_removes_it(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP, 2: RELABEL}, {})

    set_marks(engine, "me", job, {4: SampleMark(4, "a/4.png", Mark.DROP), 2: None}, {})

    assert [mark.decision for mark in list_marks(engine, "me", job)] == [(Mark.DROP, None)]


def test_nobody_sees_the_marks_of_another_owner(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP}, {})

    assert list_marks(engine, "they", job) == []
    assert marks_of_rows(engine, "they", job, [4]) == {4: None}


def test_a_mark_that_the_caller_has_not_seen_is_kept_with_all_others(
    engine: Engine, job: str
) -> None:
    set_marks(engine, "me", job, {4: KEEP}, {})

    with pytest.raises(MarkedMeanwhile) as caught:
        set_marks(
            engine, "me", job, {2: RELABEL, 4: None}, {2: None, 4: None} | {4: (Mark.DROP, None)}
        )

    assert [mark.row for mark in list_marks(engine, "me", job)] == [4]
    current = caught.value.current[4]
    assert current is not None
    assert current.decision == (Mark.KEEP, None)


def test_a_change_that_was_made_already_is_no_conflict(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP}, {4: None})

    set_marks(engine, "me", job, {4: KEEP}, {4: None})

    assert len(list_marks(engine, "me", job)) == 1


def test_thousands_of_marks_are_stored_at_once(engine: Engine, job: str) -> None:
    changes = {row: SampleMark(row, f"{row}.png", Mark.DROP) for row in range(2500)}

    set_marks(engine, "me", job, changes, {})

    assert [mark.row for mark in list_marks(engine, "me", job)] == list(range(2500))


def test_marks_leave_with_their_job(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP}, {})

    request_cancel(engine, None, job)
    begin_deletion(engine, None, job)
    end_deletion(engine, job)

    assert list_marks(engine, "me", job) == []
