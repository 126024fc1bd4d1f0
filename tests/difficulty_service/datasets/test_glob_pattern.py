"""Globs match paths part by part, whatever the number of their wildcards."""

import itertools
import os
import random
from pathlib import Path

import pytest

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.file_search import GlobPattern, find_files, parse_glob


def matches_naively(parts: list[str], pattern: list[str]) -> bool:
    """Tries every number of folders for each `**`; names and parts are single letters or `*`."""
    if not pattern:
        return not parts
    if pattern == ["**"]:
        return bool(parts)
    if pattern[0] == "**":
        return any(matches_naively(parts[n:], pattern[1:]) for n in range(len(parts) + 1))
    return bool(parts) and pattern[0] in ("*", parts[0]) and matches_naively(parts[1:], pattern[1:])


def test_every_short_pattern_matches_what_trying_everything_matches() -> None:
    paths = [list(path) for n in (1, 2, 3, 4) for path in itertools.product("ab", repeat=n)]
    patterns = [
        list(pattern)
        for n in (1, 2, 3)
        for pattern in itertools.product(("a", "*", "**"), repeat=n)
    ]

    for pattern in patterns:
        parsed = parse_glob("/".join(pattern))
        for path in paths:
            assert parsed.matches("/".join(path)) == matches_naively(path, pattern), (pattern, path)


def test_two_stars_at_the_end_match_all_files_below() -> None:
    pattern = parse_glob("photos/**")

    assert pattern.matches("photos/a.png")
    assert pattern.matches("photos/cat/a.png")
    assert not pattern.matches("others/a.png")


def test_hidden_names_need_a_part_that_begins_with_a_dot() -> None:
    assert not parse_glob("**/*.png").matches("photos/.trash/a.png")
    assert not parse_glob("*").matches(".a.png")
    assert parse_glob(".*").matches(".a.png")


def test_the_time_is_linear_in_the_length_of_the_path() -> None:
    chance = random.Random(0)  # noqa: S311 - no secret
    path = "/".join(chance.choices("ab", k=2000))
    pattern = GlobPattern(("**", "a") * 100 + ("**", "c"))

    # Trying every split of the path would take longer than the universe has existed.
    assert not pattern.matches(path)


def test_more_than_four_times_two_stars_are_refused() -> None:
    parse_glob("**/a/**/b/**/c/**/*.parquet")

    with pytest.raises(DatasetError, match=r"100 times `\*\*`, more than the 4 allowed"):
        parse_glob("**/" * 100 + "*.parquet")


def test_links_to_folders_above_are_not_followed_for_ever(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.csv").write_text("x")
    for name in ("one", "two", "three"):
        (tmp_path / "a" / name).symlink_to(tmp_path)

    files = find_files(f"{tmp_path}/**/*.csv")

    assert [file.place.path for file in files] == [f"{tmp_path}/a/x.csv"]


def test_links_to_other_folders_are_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.csv").write_text("x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "elsewhere")

    files = find_files(f"{tmp_path}/data/**/*.csv")

    assert [file.place.path for file in files] == [f"{tmp_path}/data/link/x.csv"]


def test_what_is_no_file_does_not_match(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "broken.csv").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.csv")

    files = find_files(f"{tmp_path}/*.csv")

    assert [file.place.path for file in files] == [f"{tmp_path}/x.csv"]
