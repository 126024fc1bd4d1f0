"""Keys end, get other secrets, are kept to roots, and show when they were last used."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event, select

from api.storage import key_uses
from api.storage.database import now
from api.storage.key_uses import KeyUses
from api.storage.keys import (
    BadKey,
    Key,
    KeyEnded,
    Terms,
    change_key,
    create_key,
    find_key,
    list_keys,
    revoke_key,
    rotate_key,
)
from api.storage.tables import KEYS

DAY = 86400.0
SetClock = Callable[[float], None]


def in_days(engine: Engine, days: float) -> float:
    with engine.connect() as connection:
        return now(connection) + days * DAY


def rotated(engine: Engine, key_id: str, overlap: float) -> tuple[Key, str]:
    """The key with its new secret."""
    result = rotate_key(engine, key_id, overlap)
    assert result is not None
    return result


def test_a_key_is_found_until_its_end_and_then_says_when_that_was(
    engine: Engine, set_clock: SetClock
) -> None:
    terms = Terms(expires_at=in_days(engine, 2))
    key, secret = create_key(engine, "laptop", ["read"], terms)

    set_clock(1 * DAY)
    before = find_key(engine, secret)
    set_clock(2 * DAY)

    assert before == key
    with pytest.raises(KeyEnded, match=r"^the key expired at \d{4}-\d\d-\d\d \d\d:\d\d UTC$"):
        find_key(engine, secret)


def test_an_end_that_is_over_is_refused(engine: Engine) -> None:
    over = Terms(expires_at=in_days(engine, -1))
    key, _ = create_key(engine, "laptop", ["read"])

    with pytest.raises(BadKey, match="is over"):
        create_key(engine, "other", ["read"], over)
    with pytest.raises(BadKey, match="is over"):
        change_key(engine, key.id, lambda _: over)

    assert list_keys(engine) == [key]


def test_a_key_that_has_ended_is_valid_again_with_a_later_end(
    engine: Engine, set_clock: SetClock
) -> None:
    key, secret = create_key(engine, "laptop", ["read"], Terms(in_days(engine, 1)))
    set_clock(2 * DAY)

    kept = change_key(engine, key.id, lambda terms: replace(terms, roots=frozenset({"a"})))
    with pytest.raises(KeyEnded):
        find_key(engine, secret)
    later = change_key(engine, key.id, lambda terms: replace(terms, expires_at=None))

    assert kept is not None
    assert kept.terms == Terms(key.terms.expires_at, frozenset({"a"}))
    assert find_key(engine, secret) == later


def test_both_secrets_of_a_rotated_key_are_valid_until_the_overlap_is_over(
    engine: Engine, set_clock: SetClock
) -> None:
    key, old = create_key(engine, "laptop", ["write"], Terms(roots=frozenset({"a"})))

    after, new = rotated(engine, key.id, DAY)

    assert new != old
    assert find_key(engine, old) == find_key(engine, new) == after
    assert (after.id, after.scopes, after.terms) == (key.id, key.scopes, key.terms)
    set_clock(DAY + 1)
    assert find_key(engine, new) == after
    with pytest.raises(KeyEnded, match="has another secret, and this one ended at"):
        find_key(engine, old)


def test_a_secret_that_is_replaced_at_once_is_forgotten_whatever_the_clock_says(
    engine: Engine, set_clock: SetClock
) -> None:
    key, old = create_key(engine, "laptop", ["write"])

    _, new = rotated(engine, key.id, 0)
    set_clock(-DAY)

    assert find_key(engine, old) is None
    assert find_key(engine, new) is not None


def test_a_second_rotation_ends_the_first_secret(engine: Engine) -> None:
    key, first = create_key(engine, "laptop", ["write"])

    _, second = rotated(engine, key.id, DAY)
    _, third = rotated(engine, key.id, DAY)

    assert find_key(engine, first) is None
    assert find_key(engine, second) == find_key(engine, third) is not None


def test_no_secret_of_a_rotated_key_is_valid_once_it_is_revoked(engine: Engine) -> None:
    key, old = create_key(engine, "laptop", ["write"])
    _, new = rotated(engine, key.id, DAY)

    revoke_key(engine, key.id)

    assert find_key(engine, old) is find_key(engine, new) is None


def test_a_key_that_has_ended_or_is_revoked_gets_no_other_secret(
    engine: Engine, set_clock: SetClock
) -> None:
    ended, _ = create_key(engine, "ended", ["read"], Terms(in_days(engine, 1)))
    revoked, _ = create_key(engine, "revoked", ["read"])
    revoke_key(engine, revoked.id)
    set_clock(2 * DAY)

    with pytest.raises(BadKey, match="expired at"):
        rotate_key(engine, ended.id, DAY)
    with pytest.raises(BadKey, match="which is permanent"):
        rotate_key(engine, revoked.id, DAY)
    with pytest.raises(BadKey, match="which is permanent"):
        change_key(engine, revoked.id, lambda terms: terms)


@pytest.mark.parametrize("key_id", ["", "0" * 26, "\0"])
def test_changing_or_rotating_an_unknown_key_gives_none(engine: Engine, key_id: str) -> None:
    assert rotate_key(engine, key_id, 0) is None
    assert change_key(engine, key_id, lambda terms: terms) is None


def test_uses_are_written_once_for_all_keys_and_not_again(engine: Engine) -> None:
    used, _ = create_key(engine, "used", ["read"])
    unused, _ = create_key(engine, "unused", ["read"])
    uses = KeyUses()
    statements: list[str] = []
    event.listen(
        engine, "before_cursor_execute", lambda *given: statements.append(given[2].split()[0])
    )
    for _ in range(100):
        uses.add(used.id)

    assert statements == []
    uses.record(engine)
    uses.record(engine)

    assert statements.count("UPDATE") == 1
    with engine.connect() as connection:
        found = dict(connection.execute(select(KEYS.c.id, KEYS.c.used_at)).all())
        assert found[used.id] == pytest.approx(now(connection), abs=60)
    assert found[unused.id] is None


def test_uses_that_could_not_be_written_are_written_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = create_key(engine, "used", ["read"])
    uses = KeyUses()
    uses.add(key.id)

    with monkeypatch.context() as patch:
        patch.setattr(key_uses, "record_uses", lambda *_: pytest.fail("no database"))
        with pytest.raises(pytest.fail.Exception):
            uses.record(engine)
    uses.record(engine)

    assert list_keys(engine)[0].used_at is not None
