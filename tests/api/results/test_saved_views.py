"""The views of a service are of one key and one job, bounded in number, and go with the job."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, select

from api.jobs.store import SubmitLimits, begin_deletion, end_deletion, request_cancel, submit
from api.results.saved_views import MOST_VIEWS, Reviewed, SavedView, StoredViews, TooManyViews
from api.storage.tables import SAVED_VIEWS


@pytest.fixture
def new_job(engine: Engine) -> Callable[[], str]:
    """Submits a job; gives its id."""
    limits = SubmitLimits(5, 1)
    return lambda: submit(engine, "", {"dataset": {}}, None, limits)[0].id


def test_views_are_of_one_key_and_one_job_in_the_order_of_their_names(
    engine: Engine, new_job: Callable[[], str]
) -> None:
    views = StoredViews(engine)
    one, other = Reviewed(new_job(), "mine"), Reviewed(new_job(), "mine")
    theirs = Reviewed(one.job_id, "theirs")

    for name, query in (("b", "?sort=file"), ("é'\"", ""), ("A", "?q=%00"), ("b", "?sort=easiest")):
        views.save(one, SavedView(name, query))
    views.save(theirs, SavedView("b", "?mark=any"))

    assert [view.name for view in views.all(one)] == ["A", "b", "é'\""]
    assert views.all(one)[1].query == "?sort=easiest"
    assert views.all(theirs) == [SavedView("b", "?mark=any")]
    assert views.all(other) == []

    views.delete(theirs, "A")
    views.delete(one, "b")

    assert [view.name for view in views.all(one)] == ["A", "é'\""]
    assert len(views.all(theirs)) == 1


def test_a_key_has_a_bounded_number_of_views_of_a_job(
    engine: Engine, new_job: Callable[[], str]
) -> None:
    views, of = StoredViews(engine), Reviewed(new_job(), "mine")
    for number in range(MOST_VIEWS):
        views.save(of, SavedView(f"{number}", ""))

    views.save(of, SavedView("7", "?sort=file"))
    with pytest.raises(TooManyViews):
        views.save(of, SavedView("one more", ""))

    assert len(views.all(of)) == MOST_VIEWS


def test_views_go_with_their_job(engine: Engine, new_job: Callable[[], str]) -> None:
    views, jobs = StoredViews(engine), [new_job(), new_job()]
    for job in jobs:
        views.save(Reviewed(job, ""), SavedView("mine", ""))

    request_cancel(engine, "", jobs[0])
    assert begin_deletion(engine, "", jobs[0])
    end_deletion(engine, jobs[0])

    with engine.connect() as connection:
        kept = connection.execute(select(SAVED_VIEWS.c.job)).scalars().all()
    assert kept == [jobs[1]]
