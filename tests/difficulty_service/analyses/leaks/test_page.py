"""The page of copies across splits, by its text; tests/browser looks at it."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from difficulty_service.analyses.leaks.leaks import find_leaks
from difficulty_service.analyses.leaks.page import MOST_SHOWN, write_leak_page
from difficulty_service.base.errors import DatasetError, ReportError, as_keyword
from difficulty_service.scoring.splits import Split, open_split
from tests.factories import store_of


def set_of(folder: Path, letter: str, samples: int, **options: object) -> Split:
    """Samples whose features are those of the other set with as many."""
    features = torch.randn(samples, 16, generator=torch.Generator().manual_seed(0))
    ids = [f"{letter}{row}" for row in range(samples)]
    labels = torch.zeros(samples).long()
    usual = {"dataset": str(folder / "gone"), "fingerprint": letter, "backbone": "builtin"}
    return open_split(store_of(folder, features, labels, ids, **usual | options).folder)


def sets_of(folder: Path, samples: int, **options: object) -> list[Split]:
    names = (("train", "s"), ("test", "t"))
    return [set_of(folder / name, letter, samples, **options) for name, letter in names]


def write_page(path: Path, splits: list[Split], *images: str) -> Sequence[str]:
    report = find_leaks(splits[0], splits[1:], 0.97)
    return write_leak_page(path, report, splits, images, as_keyword)


def test_without_the_datasets_the_page_lists_pairs_and_says_how_to_bring_pictures(
    tmp_path: Path,
) -> None:
    notes = write_page(tmp_path / "leaks.html", sets_of(tmp_path, 3))

    html = (tmp_path / "leaks.html").read_text()
    assert len(notes) == 2
    assert "train_images='DATASET'" in notes[0]
    assert "test_images='DATASET'" in notes[1]
    assert "there are no pictures of" in html
    assert 'class="no-pictures"' in html
    assert all(f"<bdi>t{row}</bdi><bdi>s{row}</bdi>" in html for row in range(3))


def test_a_dataset_that_was_named_must_be_there(tmp_path: Path) -> None:
    sets = sets_of(tmp_path, 3)

    with pytest.raises(DatasetError, match="nowhere"):
        write_page(tmp_path / "leaks.html", sets, str(tmp_path / "nowhere"))

    assert not (tmp_path / "leaks.html").exists()


def test_a_large_test_set_is_shown_in_part(tmp_path: Path) -> None:
    write_page(tmp_path / "leaks.html", sets_of(tmp_path, MOST_SHOWN + 5))

    html = (tmp_path / "leaks.html").read_text()
    assert f"{MOST_SHOWN} of {MOST_SHOWN + 5} are on this page" in html
    assert html.count('<ul class="strip">') == MOST_SHOWN


def test_without_copies_the_page_says_so(tmp_path: Path) -> None:
    train = set_of(tmp_path / "a", "s", 2)
    some = torch.randn(4, 16, generator=torch.Generator().manual_seed(9))
    store = store_of(tmp_path / "b", some, torch.zeros(4).long(), backbone="builtin")

    write_page(tmp_path / "leaks.html", [train, open_split(store.folder)])

    html = (tmp_path / "leaks.html").read_text()
    assert "<b>0</b> of 4 images of" in html
    assert "No image has a copy in the training set." in html


def test_texts_are_shown_by_their_beginnings(tmp_path: Path) -> None:
    texts = pa.table({"text": ["<i>first</i> words", "second"], "label": ["cat", "cat"]})
    for name, letter in (("train", "s"), ("test", "t")):
        keyed = texts.append_column("key", [[f"{letter}0", f"{letter}1"]])
        pq.write_table(keyed, tmp_path / f"{name}.parquet")
    options = {
        "modality": "text",
        "dataset_options": {"id_column": "key", "text_column": "text"},
        "class_names": ("cat",),
    }
    sets = sets_of(tmp_path / "features", 2, **options)
    images = [str(tmp_path / name) for name in ("train.parquet", "test.parquet")]

    write_page(tmp_path / "leaks.html", sets, *images)

    html = (tmp_path / "leaks.html").read_text()
    assert html.count("&lt;i&gt;first&lt;/i&gt; words") == 2
    assert "2</b> of 2 texts" in html


def test_the_page_has_the_ending_of_one(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"expected is \.html"):
        write_page(tmp_path / "leaks.txt", sets_of(tmp_path, 2))
