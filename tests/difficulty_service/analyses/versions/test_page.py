"""The page of what is new and hard, by its text."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from difficulty_service.analyses.versions.changes import find_changes
from difficulty_service.analyses.versions.page import MOST_SHOWN, new_and_hard, write_change_page
from difficulty_service.base.errors import DatasetError, ReportError, as_keyword
from difficulty_service.scoring.splits import Split, open_split
from tests.factories import store_of, write_image_folder

NAMES = ("<b>cat</b>", "dog", "owl")


def version(folder: Path, ids: list[str], labels: list[int], **options: object) -> Split:
    features = torch.randn(len(ids), 8, generator=torch.Generator().manual_seed(len(ids)))
    usual = {"dataset": str(folder / "gone"), "fingerprint": folder.name, "backbone": "builtin"}
    usual |= {"class_names": NAMES}
    store = store_of(folder, features, torch.tensor(labels), ids, **usual | options)
    return open_split(store.folder)


def page_of(path: Path, added: int, images: str | None = None) -> Sequence[str]:
    """The page of twelve samples, of which one is relabelled, and some that were added."""
    folder = path.parent
    ids = [f"s{row}" for row in range(12)]
    old = version(folder / "old", ids, [0, 1, 2] * 4)
    new_ids = [*ids, *(f"t{row}" for row in range(added))]
    new = version(folder / "new", new_ids, [1, 1, 2, *[0, 1, 2] * 3, *[0] * added])
    scores = pa.table({"sample_id": new_ids, "score": [float(row) for row in range(12 + added)]})
    report = find_changes(old, new, permutations=9, scores=scores)
    return write_change_page(path, report, (old, new), images, as_keyword)


def test_what_is_new_is_listed_with_the_hardest_first_and_names_are_text(tmp_path: Path) -> None:
    notes = page_of(tmp_path / "new.html", 3)

    html = (tmp_path / "new.html").read_text()
    assert "<b>3</b> of 15 images are new" in html
    assert html.index("<bdi>t2</bdi>") < html.index("<bdi>t1</bdi>") < html.index("<bdi>t0</bdi>")
    assert "difficulty 14.00" in html
    assert "<bdi>&lt;b&gt;cat&lt;/b&gt;</bdi> → <bdi>dog</bdi>" in html
    assert "<b>cat</b>" not in html
    assert "9 permutations" in html
    assert "images='DATASET'" in notes[0]


def test_pictures_of_the_new_version_are_on_the_page(tmp_path: Path) -> None:
    photos = write_image_folder(tmp_path / "photos", each=2)
    ids = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
    old = version(tmp_path / "old", ids[:4], [0, 0, 1, 1])
    new = version(tmp_path / "new", ids, [0, 0, 1, 1, 2, 2])
    report = find_changes(old, new, permutations=0)

    write_change_page(tmp_path / "new.html", report, (old, new), str(photos), as_keyword)

    # The features are drawn anew, so that all six differ from those before.
    assert (tmp_path / "new.html").read_text().count("data:image/webp;base64,") == 6


def test_many_new_samples_are_shown_in_part(tmp_path: Path) -> None:
    page_of(tmp_path / "new.html", MOST_SHOWN + 5)

    html = (tmp_path / "new.html").read_text()
    assert f"{MOST_SHOWN} of {MOST_SHOWN + 17} are on this page" in html
    assert "A classifier that tells new from old images" in html


def test_a_version_that_is_the_same_has_a_page_that_says_so(tmp_path: Path) -> None:
    old = version(tmp_path / "old", ["a", "b", "c"], [0, 1, 2])
    report = find_changes(old, old, permutations=0)

    write_change_page(tmp_path / "new.html", report, (old, old), None, as_keyword)

    html = (tmp_path / "new.html").read_text()
    assert "No image is new." in html
    assert "No image of both versions has another label." in html
    assert "by chance:" not in html


def test_samples_without_scores_come_after_those_with_scores_by_their_novelty() -> None:
    rows = [
        {"kind": "added", "new_id": "a", "score": None, "novelty": 5.0},
        {"kind": "added", "new_id": "b", "score": 1.0, "novelty": None},
        {"kind": "removed", "new_id": None, "score": None, "novelty": None},
        {"kind": "changed", "new_id": "c", "score": 2.0, "novelty": 1.0},
        {"kind": "added", "new_id": "d", "score": None, "novelty": 6.0},
    ]

    found = new_and_hard(pa.Table.from_pylist(rows))

    assert [row["new_id"] for row in found] == ["c", "b", "d", "a"]


def test_a_dataset_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="nowhere"):
        page_of(tmp_path / "new.html", 3, str(tmp_path / "nowhere"))

    assert not (tmp_path / "new.html").exists()


def test_the_page_has_the_ending_of_one(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"expected is \.html"):
        page_of(tmp_path / "new.txt", 1)
