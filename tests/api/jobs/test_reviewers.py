"""Jobs are shared with keys, and the marks of all reviewers are read together."""

import pytest
from sqlalchemy import Engine

from api.http.principals import Principal
from api.http.problems import Problem
from api.jobs import reviewers
from api.jobs.marks import SampleMark, set_marks
from api.jobs.reviewers import (
    marks_of_sample,
    review_marks,
    share_job,
    shared_with,
    unshare_job,
)
from api.jobs.store import (
    Job,
    SubmitLimits,
    begin_deletion,
    end_deletion,
    get_job,
    list_jobs,
    request_cancel,
    submit,
    visible_job,
)
from api.storage.keys import create_key
from api.storage.tables import FINAL
from difficulty_service.marks.mark_kinds import Mark


@pytest.fixture
def keys(engine: Engine) -> list[str]:
    """Ids of two keys."""
    return [create_key(engine, name, ["write"])[0].id for name in ("mine", "theirs")]


@pytest.fixture
def job(engine: Engine, keys: list[str]) -> Job:
    """A job of the first key."""
    return submit(engine, keys[0], {"dataset": {}}, None, SubmitLimits(5, 1))[0]


@pytest.mark.slow
def test_a_shared_job_is_seen_and_listed_by_the_key_but_not_its_own(
    engine: Engine, job: Job, keys: list[str]
) -> None:
    other, viewer = keys[1], Principal(keys[1], frozenset({"read"}))
    share_job(engine, job.id, other)
    share_job(engine, job.id, other)

    assert shared_with(engine, job.id) == [other]
    assert visible_job(engine, viewer, job.id) == job
    assert get_job(engine, other, job.id) is None
    assert list_jobs(engine, None, viewer=viewer, limit=5) == [job]
    assert list_jobs(engine, other, limit=5) == []
    assert request_cancel(engine, other, job.id) is None

    unshare_job(engine, job.id, other)

    assert visible_job(engine, viewer, job.id) is None
    assert list_jobs(engine, None, viewer=viewer, limit=5) == []


def test_a_shared_job_that_is_deleted_is_gone_for_all(
    engine: Engine, job: Job, keys: list[str]
) -> None:
    share_job(engine, job.id, keys[1])
    request_cancel(engine, keys[0], job.id)
    assert begin_deletion(engine, keys[0], job.id)

    assert visible_job(engine, Principal(keys[1], frozenset({"read"})), job.id) is None

    end_deletion(engine, job.id)
    assert shared_with(engine, job.id) == []


def test_a_job_is_shared_with_so_many_keys_at_most(
    engine: Engine, job: Job, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewers, "MOST_SHARED", 1)
    share_job(engine, job.id, keys[1])

    with pytest.raises(Problem, match="shared with 1 keys already"):
        share_job(engine, job.id, create_key(engine, "third", ["read"])[0].id)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_the_marks_of_all_come_in_the_order_of_the_rows(
    engine: Engine, job: Job, keys: list[str], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewers, "BATCH", batch)
    given = {
        keys[0]: {3: SampleMark(3, "c", Mark.KEEP, order="random")},
        keys[1]: {1: SampleMark(1, "a", Mark.DROP), 3: SampleMark(3, "c", Mark.RELABEL, "dog")},
        FINAL: {3: SampleMark(3, "c", Mark.DROP)},
    }
    for owner, changes in given.items():
        set_marks(engine, owner, job.id, changes, {})

    marks = review_marks(engine, job.id)

    found = {
        (marks.owner_ids[owner], int(row)): (marks.decided[decision], marks.order_names[order])
        for row, owner, decision, order in zip(
            marks.rows, marks.owners, marks.decisions, marks.orders, strict=True
        )
    }
    assert found == {
        (owner, row): (mark.choice, mark.order)
        for owner, changes in given.items()
        for row, mark in changes.items()
    }
    assert marks.rows.tolist() == [1, 3, 3, 3]
    assert review_marks(engine, job.id, keys[0]).owner_ids == [keys[0]]
    said = marks_of_sample(engine, job.id, 3)
    assert {owner: mark.choice for owner, mark in said.items()} == {
        owner: changes[3].choice for owner, changes in given.items()
    }
    assert len(review_marks(engine, job.id, "nobody").rows) == 0
