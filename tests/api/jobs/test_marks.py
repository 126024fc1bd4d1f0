"""Marks are stored per owner, all together or not at all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from api.jobs import marks as stored
from api.jobs.marks import (
    BATCH,
    JobMarks,
    MarkedMeanwhile,
    PartlyMarked,
    SampleMark,
    all_marks,
    count_marks,
    encode_marks,
    list_marks,
    marked_rows,
    marks_of_rows,
    set_many_marks,
    set_marks,
)
from api.jobs.queue import claim
from api.jobs.store import SubmitLimits, begin_deletion, end_deletion, request_cancel, submit
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import SCHEMA, MarkedSample, MarkHistory, Marks, to_table

KEEP = SampleMark(4, "a/4.png", Mark.KEEP)
RELABEL = SampleMark(2, "é/2.png", Mark.RELABEL, "dog")


@pytest.fixture
def job(engine: Engine) -> str:
    """Id of a job."""
    return submit(engine, "", {"dataset": {}}, None, SubmitLimits(5, 1))[0].id


def test_marks_are_listed_in_the_order_of_the_rows(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP, 2: RELABEL}, {})

    marks = list_marks(engine, "me", job)

    assert [(mark.row, mark.sample_id, mark.choice) for mark in marks] == [
        (2, "é/2.png", (Mark.RELABEL, "dog")),
        (4, "a/4.png", (Mark.KEEP, None)),
    ]
    assert all(mark.at > 1.7e9 for mark in marks)


def test_a_later_mark_replaces_an_earlier_one_and_none_removes_it(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP, 2: RELABEL}, {})

    set_marks(engine, "me", job, {4: SampleMark(4, "a/4.png", Mark.DROP), 2: None}, {})

    assert [mark.choice for mark in list_marks(engine, "me", job)] == [(Mark.DROP, None)]


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
    assert current.choice == (Mark.KEEP, None)


def test_a_change_that_was_made_already_is_no_conflict(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP}, {4: None})

    set_marks(engine, "me", job, {4: KEEP}, {4: None})

    assert len(list_marks(engine, "me", job)) == 1


def test_thousands_of_marks_are_stored_at_once(engine: Engine, job: str) -> None:
    changes = {row: SampleMark(row, f"{row}.png", Mark.DROP) for row in range(2500)}

    set_marks(engine, "me", job, changes, {})

    assert [mark.row for mark in list_marks(engine, "me", job)] == list(range(2500))


@contextmanager
def after_a_part(engine: Engine, act: Callable[[], object]) -> Iterator[None]:
    """Acts once, after the first transaction within the context and before the next one."""
    is_done = False

    def once(*_: object) -> None:
        nonlocal is_done
        if not is_done:
            is_done = True
            act()

    event.listen(engine, "checkin", once)
    try:
        yield
    finally:
        event.remove(engine, "checkin", once)


def drops(number: int) -> dict[int, SampleMark | None]:
    """Marks for so many samples."""
    return {row: SampleMark(row, f"{row}.png", Mark.DROP) for row in range(number)}


def test_another_key_writes_before_all_of_many_marks_are_stored(
    engine: Engine, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "AT_A_TIME", 100)
    seen: list[int] = []

    def write() -> None:
        submit(engine, "they", {"dataset": {}}, None, SubmitLimits(5, 1))
        seen.append(len(list_marks(engine, "me", job)))

    with after_a_part(engine, write):
        set_many_marks(engine, "me", job, drops(250))

    assert seen == [100]
    assert [mark.row for mark in list_marks(engine, "me", job)] == list(range(250))


def test_many_marks_that_were_stored_in_part_say_so_and_are_all_stored_by_the_same_call(
    engine: Engine, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "AT_A_TIME", 100)
    unstorable = drops(250) | {180: SampleMark(180, None, Mark.DROP)}  # type: ignore[arg-type]

    with pytest.raises(PartlyMarked, match=r"^100 of 250 samples were marked$") as caught:
        set_many_marks(engine, "me", job, unstorable)
    stored_before = len(list_marks(engine, "me", job))
    set_many_marks(engine, "me", job, drops(250))

    assert isinstance(caught.value.reason, IntegrityError)
    assert stored_before == 100
    assert len(list_marks(engine, "me", job)) == 250


def test_many_marks_of_which_none_was_stored_have_the_error_of_the_database(engine: Engine) -> None:
    with pytest.raises(IntegrityError):
        set_many_marks(engine, "me", "no job", drops(2))


def test_marks_leave_with_their_job(engine: Engine, job: str) -> None:
    set_marks(engine, "me", job, {4: KEEP}, {})

    request_cancel(engine, None, job)
    begin_deletion(engine, None, job)
    end_deletion(engine, job)

    assert list_marks(engine, "me", job) == []


def test_marks_are_counted_listed_and_filtered_without_reading_all(
    engine: Engine, job: str
) -> None:
    set_marks(engine, "me", job, {4: KEEP, 2: RELABEL, 9: SampleMark(9, "9", Mark.KEEP)}, {})
    set_marks(engine, "they", job, {5: KEEP}, {})

    assert count_marks(engine, "me", job) == {("", Mark.KEEP): 2, ("", Mark.RELABEL): 1}
    assert marked_rows(engine, "me", job).tolist() == [2, 4, 9]
    assert marked_rows(engine, "me", job, Mark.KEEP).tolist() == [4, 9]
    assert [mark.row for mark in list_marks(engine, "me", job, after=3, limit=1)] == [4]


@pytest.mark.slow
def test_marks_come_in_parts_that_together_are_all(engine: Engine, job: str) -> None:
    number = BATCH + 10
    set_marks(
        engine,
        "me",
        job,
        {row: SampleMark(row, f"{row}.png", Mark.KEEP) for row in range(number)},
        {},
    )

    batches = list(all_marks(engine, "me", job))

    assert [len(batch) for batch in batches] == [BATCH, 10]
    ids = [mark.sample_id for batch in batches for mark in batch]
    assert ids == [f"{row}.png" for row in range(number)]


def test_an_attempt_that_lost_its_job_changes_none_of_the_applied_marks(engine: Engine) -> None:
    first = MarkHistory(later=Marks.of([MarkedSample("a.png", Mark.KEEP)]))
    applied = [MarkedSample("a.png", Mark.KEEP, None, "cat", "0" * 64, round=1)]
    encoded = encode_marks(SCHEMA.empty_table(), to_table(first.later.samples.values()))
    request = {"dataset": {}}
    job = submit(engine, "", request, None, SubmitLimits(5, 2), encoded)[0]
    claimed = claim(engine, "worker", "cpu", 60.0)
    assert claimed is not None

    JobMarks(engine, job.id, claimed.attempt + 1).remember(applied)
    unchanged = JobMarks(engine, job.id).read()
    JobMarks(engine, job.id, claimed.attempt).remember(applied)

    assert unchanged == first
    assert [*JobMarks(engine, job.id).read().earlier.samples.values()] == applied
