"""Pages of a score file are those of the whole file, sorted."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.results import score_pages
from api.results.score_pages import SORTABLE, BadQuery, PageQuery, read_page
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table

ROWS = 1000
NAMES = ["cat", "dog", "7"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A score file with ties, missing values and infinite ones."""
    generator = np.random.default_rng(3)
    rmd = generator.integers(-20, 20, ROWS).astype(float)
    rmd[::50] = np.nan
    rmd[5] = np.inf
    labels = generator.integers(0, len(NAMES), ROWS)
    table = score_table(
        labels,
        NAMES,
        [f"{row:04d}" for row in range(ROWS)],
        md=generator.normal(size=ROWS),
        rmd=pa.array(rmd, from_pandas=True),
        nearest_label=labels,
        knn=pa.nulls(ROWS, pa.float32()),
    )
    path = tmp_path_factory.mktemp("scores") / "scores.parquet"
    write_scores(path, table, Provenance.of({"class_names": NAMES}))
    return path


@pytest.fixture(autouse=True)
def _many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_pages, "BATCH_ROWS", 64)


def pages(path: Path, sort: str, label: str | None = None, limit: int = 37) -> list[str]:
    """The sample ids of all pages, one after the other."""
    seen: list[str] = []
    after = None
    with pq.ParquetFile(path) as file:
        while True:
            page = read_page(file, PageQuery(sort, label, limit, after))
            seen += [row["sample_id"] for row in page.rows]
            after = page.next
            if after is None:
                assert page.matching == len(seen)
                return seen
            assert len(page.rows) == limit


def sorted_naively(path: Path, sort: str, label: str | None = None) -> list[str]:
    column, sign = sort.removeprefix("-"), -1 if sort.startswith("-") else 1
    rows = pq.read_table(path).to_pylist()
    wanted = [row for row in rows if label in (None, row["label_name"])]
    values = [(row[column], row["sample_id"]) for row in wanted]
    missing = [each for each in values if each[0] is None or math.isnan(each[0])]
    present = [each for each in values if each not in missing]
    present.sort(key=lambda each: (sign * each[0], each[1]))
    return [sample_id for _, sample_id in present + missing]


@pytest.mark.parametrize("sort", ["rmd", "-rmd", "md", "-md", "label", "-label", "knn"])
def test_all_pages_together_are_the_sorted_file(path: Path, sort: str) -> None:
    assert pages(path, sort) == sorted_naively(path, sort)


def test_an_order_by_an_absent_column_says_what_to_ask_for(path: Path) -> None:
    with pq.ParquetFile(path) as file, pytest.raises(BadQuery) as caught:
        read_page(file, PageQuery("-suspicion", None, 10, None))

    assert caught.value.field == "sort"
    assert str(caught.value) == "the score file of this job has no suspicion"
    assert caught.value.remedy == 'score with "scorers": ["suspicion"]'


def test_an_order_that_no_request_can_bring_names_the_others(path: Path) -> None:
    with pq.ParquetFile(path) as file, pytest.raises(BadQuery) as caught:
        read_page(file, PageQuery("loss", None, 10, None))

    assert caught.value.remedy == "sort by one of label, md, rmd, knn"


def test_rows_have_the_columns_of_the_file(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        page = read_page(file, PageQuery("rmd", None, 1, None))

    expected = ["sample_id", "label", "label_name", "md", "rmd", "nearest_label", "knn"]
    assert list(page.rows[0]) == expected


@pytest.mark.parametrize("label", NAMES)
def test_a_label_leaves_only_its_samples(path: Path, label: str) -> None:
    assert pages(path, "-rmd", label) == sorted_naively(path, "-rmd", label)


def test_a_label_is_a_name_first_and_then_an_index(path: Path) -> None:
    assert pages(path, "rmd", "7") == sorted_naively(path, "rmd", "7")
    assert pages(path, "rmd", "1") == sorted_naively(path, "rmd", "dog")


def test_a_page_that_ends_with_the_file_is_the_last(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        assert read_page(file, PageQuery("rmd", None, ROWS, None)).next is None
        assert read_page(file, PageQuery("rmd", None, ROWS - 1, None)).next is not None


def test_numbers_that_are_not_finite_are_null(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        hardest = read_page(file, PageQuery("-rmd", None, 1, None)).rows[0]

    assert hardest["sample_id"] == "0005"
    assert hardest["rmd"] is None


def test_no_more_rows_are_held_than_a_page_and_a_batch(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    best = score_pages._Candidates.best

    def watched(found: score_pages._Candidates, number: int) -> score_pages._Candidates:
        held.append(len(found.rows))
        return best(found, number)

    monkeypatch.setattr(score_pages._Candidates, "best", watched)
    with pq.ParquetFile(path) as file:
        read_page(file, PageQuery("-rmd", None, 10, None))

    assert max(held) <= 64 + 11


@pytest.mark.parametrize(
    ("query", "field"),
    [
        (PageQuery("sample_id", None, 10, None), "sort"),
        (PageQuery("--rmd", None, 10, None), "sort"),
        (PageQuery("rmd", "fish", 10, None), "label"),
        (PageQuery("rmd", "3", 10, None), "label"),
        (PageQuery("rmd", "²", 10, None), "label"),
        (PageQuery("rmd", "0000000000999", 10, None), "label"),
        (PageQuery("rmd", "9" * 5000, 10, None), "label"),
        (PageQuery("rmd", None, 10, "x"), "after"),
        (PageQuery("rmd", None, 10, "é"), "after"),
        (PageQuery("rmd", None, 10, "A" * 34), "after"),
    ],
)
def test_what_does_not_fit_the_file_is_named(path: Path, query: PageQuery, field: str) -> None:
    with pq.ParquetFile(path) as file, pytest.raises(BadQuery) as caught:
        read_page(file, query)

    assert caught.value.field == field


def test_a_cursor_belongs_to_its_order(path: Path) -> None:
    with pq.ParquetFile(path) as file:
        after = read_page(file, PageQuery("rmd", None, 10, None)).next

        with pytest.raises(BadQuery, match="another sort"):
            read_page(file, PageQuery("-rmd", None, 10, after))


def test_every_number_of_a_score_file_can_be_sorted_by() -> None:
    assert set(SORTABLE) >= {"md", "rmd", "rmd_loo", "label_margin", "percentile", "kmeans", "knn"}
