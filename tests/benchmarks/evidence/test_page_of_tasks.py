"""Tables about tags, copies and choices, and what the page says of them."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence import copies, image_tags, page_of_tasks, selection
from benchmarks.evidence.page_of_others import other_tasks
from benchmarks.evidence.page_text import Tables
from benchmarks.evidence.tables import write_rows
from benchmarks.studies import pruning


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Tables with a few rows each."""
    kept = {"dataset": "cifar10", "labels": "wrong", "sd": "1.0"}
    random = {**kept, "choice": "random", "share": "0.5", "accuracy": "40.00"}
    chosen = {"accuracy": "1", "difference": "+2.50", "interval": "1.00"}
    least = {**kept, "choice": "least p_wrong", "share": "0.5", **chosen}
    mixed = {**kept, "choice": "mixed", "share": "1", **chosen, "interval": "3.00"}
    whole = {**kept, "choice": "all images", "share": "1", "accuracy": "55.00"}
    rows = [whole, random, least, mixed]
    write_rows(tmp_path / "pruning.csv", pruning.COLUMNS, rows)
    pool = {"dataset": "CIFAR-10", "wrong_share": "0", "count": "50", "seeds": "3"}
    rows = [
        {**pool, "choice": "random", "accuracy": "45.6"},
        {**pool, "choice": "typical", "accuracy": "55.6", "difference": "+10.0"},
        {**pool, "choice": "diverse", "accuracy": "40.7", "difference": "-4.9"},
    ]
    rows[1]["difference_95"], rows[2]["difference_95"] = "3.0", "4.0"
    write_rows(tmp_path / "selection.csv", selection.COLUMNS, rows)
    found = image_tags.Found((100, 90, 80, 60), (0.9, 0.8), (0.5, 0.5))
    row = {"images": "classes", "kind": "wrong", **image_tags.row_of([found, found])}
    write_rows(tmp_path / "tags.csv", image_tags.COLUMNS, [row])
    row = {"dataset": "cifar10", "cosine": "0.97", "near_percent": "1.4", "conflicting": "0"}
    write_rows(tmp_path / "leaks.csv", copies.COLUMNS, [{**row, "published_percent": "3.3"}])
    return Tables(tmp_path)


def test_a_choice_of_images_is_shown_beside_the_random_one(tables: Tables) -> None:
    text = page_of_tasks.pruning(tables)

    assert "| trained on | CIFAR-10, wrong |" in text
    assert "| all images | 55.00 |" in text
    assert "| all, easy first | not run |" in text
    assert "| all, mixed | +2.50 ± 3.00 |" in text
    assert "| half, random | 40.00 |" in text
    assert "| half, least p_wrong | **+2.50 ± 1.00** |" in text
    assert "| half, largest EL2N | not run |" in text


def test_a_choice_of_samples_is_bold_where_it_is_surely_better(tables: Tables) -> None:
    text = page_of_tasks.selection(tables)

    assert "| choice | CIFAR-10, 50 |" in text
    assert "| random | 45.6 |" in text
    assert "| typical | **55.6** |" in text
    assert "| diverse | 40.7 |" in text
    assert "1 of 2 are better" in text
    assert "1 of 2 worse" in text


def test_rankings_of_tags_stand_beside_those_of_cleanlab(tables: Tables) -> None:
    text = page_of_tasks.tags(tables)

    assert "| classes | wrong | 100 | 90 | **0.900 / 0.800** | 0.500 / 0.500 | 0.75 |" in text


def test_copies_stand_beside_the_published_share(tables: Tables) -> None:
    assert "| CIFAR-10 | 0.97 | 1.4 | 3.3 | 0 |" in page_of_tasks.copies(tables)


def test_only_tables_that_were_written_are_linked(tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "pruning.csv").unlink()

    assert "pruning" not in other_tasks(tables)
    assert "[copies](evidence/leaks.csv)" in other_tasks(tables)
    assert not page_of_tasks.pruning(tables)


def test_errors_are_counted_above_one_half() -> None:
    p_wrong = np.array([0.9, 0.6, 0.4, 0.1])
    is_wrong = np.array([True, False, True, False])

    found = image_tags.compare(p_wrong, p_wrong[::-1], is_wrong)

    assert found.counts == (2, 2.0, 2, 1)
    assert found.auroc == (0.75, 0.25)


def test_planted_tags_are_missing_or_wrong_in_the_stated_shares() -> None:
    right = np.random.default_rng(0).random((20_000, 5)) < 0.2

    given = image_tags.plant(right, seed=1)

    assert (right & ~given).sum() / right.sum() == pytest.approx(0.1, abs=0.01)
    assert (given & ~right).sum() / right.sum() == pytest.approx(0.05, abs=0.01)


def test_the_last_images_of_each_class_are_for_the_test() -> None:
    is_test = selection.held_out(np.array([0, 1, 0, 1, 0, 1]))

    assert is_test.tolist() == [False, False, True, True, True, True]


def test_a_random_choice_has_as_many_wrong_labels_as_the_pool() -> None:
    right = np.arange(2000) % 4
    given = selection.with_wrong_labels(right, 0.1, seed=3)
    features = np.random.default_rng(0).normal(size=(2000, 4))

    chosen = selection.ds.select((features, given), 500, seed=3).sample_ids

    assert (given != right).sum() == 200
    assert (given != right)[[int(each) for each in chosen]].mean() == pytest.approx(0.1, abs=0.05)


def test_every_choice_is_an_option_of_the_command() -> None:
    labels = np.arange(48) % 2
    features = np.random.default_rng(0).normal(size=(48, 4)) + 4 * labels[:, None]
    scores = selection.ds.score(features, labels)

    for name in selection.CHOICES:
        rows = selection.choose(name, (features, labels), scores, 6, seed=0)
        assert len(set(rows.tolist())) == 6
