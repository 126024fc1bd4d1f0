"""`difficulty keys` says what it does to a key, and when the key ends."""

import io
import re
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.jobs.store import SubmitLimits, submit
from api.key_commands import change, create, end_of, revoke, rotate, show
from api.settings import SQLITE_FILE
from api.storage.keys import find_key, list_keys, record_uses
from difficulty_service.base.errors import ConfigError
from difficulty_service.cli import console

NOON = datetime(2026, 11, 5, 12, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def service(
    sqlite_engine: Engine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Has the commands use the database of the test, and know the root `photos`."""
    assert sqlite_engine.url
    monkeypatch.setenv("DIFFICULTY_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("DIFFICULTY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("DIFFICULTY_ROOTS", '{"photos": "/photos"}')


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What was printed and what was said since the last call, each in one line."""
    out, err = capsys.readouterr()
    return " ".join(out.split()), " ".join(err.split())


def test_the_first_key_says_what_it_takes_over_and_later_ones_nothing(
    sqlite_engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        submit(sqlite_engine, "", {"dataset": {}}, None, SubmitLimits(5, 1))

    create("first")
    secret, first = said(capsys)
    create("second")
    _, second = said(capsys)

    taken = "takes over what was made before there were keys: 2 jobs, 0 uploads, 0 marks, 0 saved"
    assert taken in first
    assert "takes over" not in second
    assert secret.startswith("difficulty_")


def test_a_key_is_made_changed_listed_rotated_and_revoked(
    sqlite_engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    create("laptop", expires="2999-01-31", roots="photos, scans")
    first, made = said(capsys)
    (key,) = list_keys(sqlite_engine)
    change(key.id, expires="never", roots="*")
    _, changed = said(capsys)
    rotate(key.id, overlap="2h")
    second, rotated = said(capsys)
    overlapping = find_key(sqlite_engine, first)
    rotate(key.id, overlap="0")
    third, ended = said(capsys)
    change(key.id, roots="")
    show()
    listed, _ = said(capsys)
    revoke(key.id)

    assert "roots: photos,scans; expires: 2999-01-31 00:00 UTC" in made
    assert "has no root 'scans' here" in made
    assert "has no root 'photos'" not in made
    assert "roots: all; expires: never" in changed
    assert "Its secret before is valid until " in rotated
    assert "Its secret before has ended." in ended
    assert len({first, second, third}) == 3
    assert overlapping is not None
    assert find_key(sqlite_engine, first) is find_key(sqlite_engine, second) is None
    assert "none" in listed
    assert "used" in listed
    assert list_keys(sqlite_engine)[0].revoked_at


def test_the_list_of_keys_fits_a_terminal_of_80_columns(
    sqlite_engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 80)
    create("laboratory", expires="2999-01-31")
    create("the reviewers of the second floor", scopes="read-all,write", roots="photos,scans")
    record_uses(sqlite_engine, {key.id for key in list_keys(sqlite_engine)})
    said(capsys)

    show()

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    assert all(key.id in shown for key in list_keys(sqlite_engine))
    assert "2999-01-31" in shown
    assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d", shown)) == 2


def test_what_is_not_there_or_not_said_is_named_with_the_remedy() -> None:
    unknown = "0" * 26

    for act in (
        lambda: change(unknown, roots=""),
        lambda: rotate(unknown),
        lambda: revoke(unknown),
    ):
        with pytest.raises(ConfigError, match=rf"no key '{unknown}'.*keys list"):
            act()
    with pytest.raises(ConfigError, match="nothing is to be changed"):
        change(unknown)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("never", None),
        ("90d", NOON + 90 * 86400),
        (" 2w ", NOON + 14 * 86400),
        ("30m", NOON + 1800),
        ("2027-01-31", datetime(2027, 1, 31, tzinfo=UTC).timestamp()),
    ],
)
def test_an_end_is_a_length_or_a_day(text: str, end: float | None) -> None:
    assert end_of(text, NOON) == end


@pytest.mark.parametrize(
    "text", ["", "90", "0d", "-1d", "1y", "9999999w", "2027-02-30", "d", "1.5d"]
)
def test_another_end_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a length of time.*90d.*2027-01-31"):
        end_of(text, NOON)


def test_a_new_database_is_announced_and_none_is_made_to_list_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DIFFICULTY_DATABASE_URL")
    monkeypatch.setenv("DIFFICULTY_DATA_DIR", str(tmp_path / "elsewhere"))

    with pytest.raises(ConfigError, match=r"there is no database in .*elsewhere; set DIFFICULTY_D"):
        show()
    assert not (tmp_path / "elsewhere").exists()
    create("first")
    _, first = said(capsys)
    create("second")
    _, second = said(capsys)

    assert f"A new database is made in {tmp_path / 'elsewhere'}." in first
    assert "new database" not in second


@pytest.mark.parametrize("answer", ["n", ""])
def test_on_a_terminal_a_new_database_is_made_if_the_answer_is_yes(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "elsewhere"
    monkeypatch.delenv("DIFFICULTY_DATABASE_URL")
    monkeypatch.setenv("DIFFICULTY_DATA_DIR", str(folder))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(console.err, "_force_terminal", True)

    with pytest.raises(ConfigError, match="no key is made") if answer else nullcontext():
        create("first")

    assert "Make it? [Y/n]" in said(capsys)[1]
    assert (folder / SQLITE_FILE).exists() == (not answer)
