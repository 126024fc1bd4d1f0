"""Entry points are read once, and again when a package is installed."""

from pathlib import Path

import pytest

from difficulty_service.base.entry_points import entry_points_of


def install(site: Path, name: str) -> None:
    facts = site / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[difficulty.trial]\n{name} = {name}:run\n")


def test_a_package_that_is_installed_later_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "first")

    before = entry_points_of("difficulty.trial")
    install(tmp_path, "second")
    after = entry_points_of("difficulty.trial")

    assert before.names == {"first"}
    assert after.names == {"first", "second"}


def test_files_are_not_read_again() -> None:
    (first,) = entry_points_of("difficulty.commands").select(name="api")

    (second,) = entry_points_of("difficulty.commands").select(name="api")

    assert first is second
