"""`difficulty keys create` says what the first key takes over."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.commands import create
from api.jobs.store import SubmitLimits, submit


def test_the_first_key_says_what_it_takes_over_and_later_ones_nothing(
    sqlite_engine: Engine,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("DIFFICULTY_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("DIFFICULTY_DATA_DIR", str(tmp_path))
    for _ in range(2):
        submit(sqlite_engine, "", {"dataset": {}}, None, SubmitLimits(5, 1))

    create("first")
    first = capsys.readouterr()
    create("second")
    second = capsys.readouterr()

    said = " ".join(first.err.split())
    assert (
        "takes over what was made before there were keys: 2 jobs, 0 uploads, 0 marks, 0 saved"
        in said
    )
    assert "takes over" not in second.err
    assert first.out.startswith("difficulty_")
