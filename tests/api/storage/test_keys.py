"""API keys are created, found by their secret, and revoked."""

import pytest
from sqlalchemy import Engine, select

from api.jobs.marks import SampleMark, list_marks, set_marks
from api.jobs.store import SubmitLimits, get_job, submit
from api.results.saved_views import Reviewed, SavedView, StoredViews
from api.storage.keys import (
    BadKey,
    any_keys,
    count_owned,
    create_key,
    find_key,
    list_keys,
    revoke_key,
)
from api.storage.tables import KEYS
from api.uploads.store import create_upload, get_upload
from difficulty_service.marks.mark_kinds import Mark


def test_a_key_is_found_by_its_secret(engine: Engine) -> None:
    key, secret = create_key(engine, "laptop", ["read"])

    assert find_key(engine, secret) == key


@pytest.mark.parametrize("secret", ["", "difficulty_", "\0", "\udcff", "ü" * 1000])
def test_another_secret_finds_nothing(engine: Engine, secret: str) -> None:
    create_key(engine, "laptop", ["read"])

    assert find_key(engine, secret) is None


def test_the_secret_is_nowhere_in_the_database(engine: Engine) -> None:
    _, secret = create_key(engine, "laptop", ["read"])

    with engine.connect() as connection:
        row = connection.execute(select(KEYS)).one()

    assert secret.removeprefix("difficulty_") not in str(row)
    assert len(row.secret_sha256) == 64


def test_two_keys_have_two_secrets(engine: Engine) -> None:
    one, first = create_key(engine, "laptop", ["read"])
    two, second = create_key(engine, "laptop", ["read"])

    assert one.id != two.id
    assert first != second


def test_a_revoked_key_is_listed_but_not_found(engine: Engine) -> None:
    key, secret = create_key(engine, "laptop", ["read"])

    revoked = revoke_key(engine, key.id)

    assert find_key(engine, secret) is None
    assert list_keys(engine) == [revoked]
    assert revoked is not None
    assert revoked.revoked_at is not None


def test_revoking_again_keeps_the_first_time(engine: Engine) -> None:
    key, _ = create_key(engine, "laptop", ["read"])

    assert revoke_key(engine, key.id) == revoke_key(engine, key.id)


@pytest.mark.parametrize("key_id", ["", "0" * 26, "\0"])
def test_revoking_an_unknown_key_returns_none(engine: Engine, key_id: str) -> None:
    assert revoke_key(engine, key_id) is None


def test_keys_are_listed_oldest_first(engine: Engine) -> None:
    keys = [create_key(engine, name, ["read"])[0] for name in ("c", "a", "b")]

    assert list_keys(engine) == sorted(keys, key=lambda key: (key.created_at, key.id))


def test_keys_stay_in_use_when_the_last_one_is_revoked(engine: Engine) -> None:
    before = any_keys(engine)
    for _ in range(2):
        revoke_key(engine, create_key(engine, "laptop", ["read"])[0].id)

    assert not before
    assert any_keys(engine)


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", {"read"}),
        ("write", {"read", "write"}),
        ("admin", {"read", "write", "admin"}),
    ],
)
def test_a_scope_implies_the_lesser_ones(engine: Engine, scope: str, allowed: set[str]) -> None:
    _, secret = create_key(engine, "laptop", [scope])

    key = find_key(engine, secret)

    assert key is not None
    assert {scope for scope in ("read", "write", "admin") if key.allows(scope)} == allowed


@pytest.mark.parametrize(
    ("name", "scopes"),
    [("laptop", []), ("laptop", ["root"]), ("", ["read"]), ("a" * 201, ["read"]), ("\0", ["read"])],
)
def test_a_key_without_name_or_known_scope_is_refused(
    engine: Engine, name: str, scopes: list[str]
) -> None:
    with pytest.raises(BadKey):
        create_key(engine, name, scopes)

    assert list_keys(engine) == []


def test_the_first_key_takes_over_what_was_made_before_there_were_keys(engine: Engine) -> None:
    job, _ = submit(engine, "", {"dataset": {}}, "once", SubmitLimits(5, 1))
    set_marks(engine, "", job.id, {1: SampleMark(1, "a.png", Mark.DROP)}, {})
    upload = create_upload(engine, "", "zip", None)
    views = StoredViews(engine)
    views.save(Reviewed(job.id, ""), SavedView("mine", ""))

    first, _ = create_key(engine, "first", ["write"])
    second, _ = create_key(engine, "second", ["write"])

    owned = {"jobs": 1, "uploads": 1, "marks": 1, "saved views": 1}
    assert count_owned(engine, first.id) == owned
    assert count_owned(engine, second.id) == dict.fromkeys(owned, 0)
    assert views.all(Reviewed(job.id, first.id)) == [SavedView("mine", "")]
    assert get_job(engine, first.id, job.id) is not None
    assert get_upload(engine, first.id, upload.id) is not None
    assert [mark.sample_id for mark in list_marks(engine, first.id, job.id)] == ["a.png"]
    assert list_marks(engine, "", job.id) == []


def test_a_later_key_takes_nothing_over_also_where_all_others_are_revoked(engine: Engine) -> None:
    revoke_key(engine, create_key(engine, "first", ["write"])[0].id)
    job, _ = submit(engine, "", {"dataset": {}}, None, SubmitLimits(5, 1))

    later, _ = create_key(engine, "later", ["admin"])

    assert get_job(engine, later.id, job.id) is None
    assert get_job(engine, "", job.id) is not None
