"""The page as it is written, without a browser."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from difficulty_service.base.errors import ReportError
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.pages.cards import LARGE, to_data_uri
from difficulty_service.pages.stored_images import open_images
from difficulty_service.reports.writing import ReportParts, write_report
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.score_files import random_scores

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}\u202egnp.exe"


def page_of(path: Path, scores: ScoreFile, parts: ReportParts | None = None) -> str:
    write_report(path, scores, parts or ReportParts())
    return path.read_text("utf-8")


def words(page: str) -> str:
    """The text that a reader sees."""
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Sixty photographs of three classes, too noisy to become small."""
    generator = np.random.default_rng(0)
    for row in range(60):
        path = tmp_path / "photos" / f"class-{row % 3:05d}" / f"{row}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (300, 400, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, exif=Image.Exif(), quality=95)
    return tmp_path / "photos"


@pytest.fixture
def photo_scores(photos: Path) -> ScoreFile:
    ids = [f"class-{row % 3:05d}/{row}.jpg" for row in range(60)]
    scores = random_scores(60, 3, ids=ids)
    return replace(scores, provenance=scores.provenance.updated(Provenance(dataset=str(photos))))


def test_the_first_sentence_counts_the_doubtful_samples(tmp_path: Path) -> None:
    text = words(page_of(tmp_path / "r.html", random_scores(600)))

    assert "102 of 600 images look more like another class than their own." in text
    assert "102 of 102" not in text
    assert "In the hardest 5 % Another class fits better Images" in text


def test_the_labels_to_check_have_the_number_that_orders_them(tmp_path: Path) -> None:
    suspicion = [-1.0, 7.3, 2.5, -3.0, None, -0.5]
    scores = random_scores(6, 2, suspicion=suspicion, suggested_label=[1, 0, 1, 0, None, 0])
    unread = scores.provenance.updated(Provenance(num_bad_images=2))

    page = page_of(tmp_path / "r.html", replace(scores, provenance=unread))

    text = words(page)
    margins = scores.table["label_margin"].to_pylist()
    number = sum(
        margins[row] > 0 for row, value in enumerate(suspicion) if value is not None and value <= 0
    )
    assert (
        f"2 of 5 labels are probably wrong, 1 of them almost certainly. {number} ambiguous · "
        f"{3 - number} fit{'s' if number == 2 else ''} · 2 unreadable · 1 alone in its class"
    ) in text
    assert "look more like another class" not in text
    assert "In the hardest 5 % Labels probably wrong Images" in text
    assert "The number is the chance that the label is wrong" in text
    assert "margin between both" not in text
    assert "Chance of a wrong label from" in text
    numbers = re.findall(r'class="number">([^<]*)<', page[page.index('id="labels"') :])
    assert [each.replace("\N{NO-BREAK SPACE}", " ") for each in numbers[:2]] == [
        "&gt; 99.9 %",
        "92.4 %",
    ]


def test_labels_between_two_classes_are_listed_where_none_is_probably_wrong(tmp_path: Path) -> None:
    margins = [-1.0, 7.3, 2.5, -3.0, -2.0, -1.0]
    scores = random_scores(
        6,
        2,
        label_margin=margins,
        suspicion=[-9.0, -2.0, -1.0, -9.0, -9.0, -9.0],
        suggested_label=[1] * 6,
    )

    page = page_of(tmp_path / "r.html", scores)

    text = words(page)
    assert "No label is likely to be wrong. 2 ambiguous · 4 fit" in text
    assert "2 between two classes Is the label right?" in text
    assert "The number is the margin between both" in text
    numbers = re.findall(r'class="number">([^<]*)<', page[page.index('id="labels"') :])
    assert numbers == ["7.3", "2.5"]


def test_a_cell_of_the_matrix_leads_to_the_cards_that_are_on_the_page(tmp_path: Path) -> None:
    # Of the first class 300 are doubtful, of which 240 are on the page; two of the second are less.
    rows = np.arange(900)
    nearest = (rows + 1) % 3
    margins = np.where(rows % 3 == 0, 9.0, np.where(np.isin(rows, (1, 4)), 1.0, -1.0))
    scores = random_scores(900, 3, label_margin=margins, nearest_label=nearest)

    page = page_of(tmp_path / "r.html", scores)

    matrix = page.partition('class="matrix"')[2].partition("</table>")[0]
    links = re.findall(r'<a [^>]*title="([^"]*)">(\d+)<small>(\d+) here</small></a>', matrix)
    assert links == [("240 of 300 are on this page", "300", "240")]
    assert matrix.count("<a ") == 1
    assert re.findall(r">\s*(\d+)\s*</td>", matrix) == ["2"]


@pytest.mark.parametrize(
    ("margins", "sentence"),
    [
        ([-1.0] * 6, "No image looks more like another class than its own."),
        ([None] * 4 + [-1.0] * 2, "than its own. 4 compared with no other class"),
        ([1.0] + [-1.0] * 5, "1 of 6 images looks more like another class than its own."),
        ([None] * 6, "The labels cannot be checked: there is no second class to compare with."),
    ],
)
def test_none_one_and_no_comparison_have_sentences_of_their_own(
    tmp_path: Path, margins: list[float | None], sentence: str
) -> None:
    page = page_of(tmp_path / "r.html", random_scores(6, 2, label_margin=margins))

    assert sentence in words(page)


@pytest.mark.parametrize(("samples", "classes"), [(2, 1), (4, 2), (50, 2), (50, 50)])
def test_small_datasets_have_a_report(tmp_path: Path, samples: int, classes: int) -> None:
    text = words(page_of(tmp_path / "r.html", random_scores(samples, classes)))

    assert f"{samples} images" in text
    assert "nan" not in text


def test_scores_that_do_not_differ_have_no_histogram(tmp_path: Path) -> None:
    page = page_of(tmp_path / "r.html", random_scores(60, rmd=[2.5] * 60))

    assert "Distribution of difficulty" not in page
    assert "2.5" in words(page)


@pytest.mark.slow
def test_ten_thousand_classes_stay_a_small_page_that_names_its_limits(tmp_path: Path) -> None:
    page = page_of(tmp_path / "r.html", random_scores(40_000, 10_000))

    text = words(page)
    assert len(page) < 1_000_000
    assert "The 50 hardest of 10,000 classes are listed." in text
    assert "The 30 pairs of classes that are confused most." in text
    assert re.search(r"240 of [\d,]+ are on this page", text)
    assert 'class="matrix"' not in page


@pytest.mark.slow
def test_the_policy_allows_the_script_and_style_of_the_page_and_nothing_else(
    tmp_path: Path, photo_scores: ScoreFile
) -> None:
    images = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())
    page = page_of(tmp_path / "r.html", photo_scores, ReportParts(images))

    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in html.unescape(policy[1]).split(";"))
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives[name] == f"'sha256-{digest}'"
    assert directives["default-src"] == "'none'"
    assert directives["img-src"] == "data:"
    assert not re.search(r"<[^>]*\s(style|on\w+)=", page)
    sources = re.findall(r'\s(?:src|href)="([^"]*)"', page)
    assert {source.split(":")[0] for source in sources if not source.startswith("#")} == {"data"}


def test_hostile_names_and_ids_are_text(tmp_path: Path) -> None:
    ids = [f"{row}{HOSTILE}" for row in range(30)]
    names = [f"{label}{HOSTILE}" for label in range(3)]
    scores = random_scores(30, 3, ids=ids, names=names)
    scores = replace(scores, provenance=scores.provenance.updated(Provenance(backbone=HOSTILE)))

    page = page_of(tmp_path / "r.html", scores)

    assert "<img src=x" not in page
    assert page.count("</script>") == 3  # the data of the page and of its marks, and the scripts
    assert "49" not in re.findall(r"\{\{.*?\}\}|\b49\b", words(page))
    data = re.search(r'id="review-data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    loaded = json.loads(data[1])
    assert set(loaded["names"].values()) == set(names)
    assert {card["id"] for card in loaded["cards"]} <= set(ids)


def test_without_images_the_page_says_which_option_brings_them(tmp_path: Path) -> None:
    note = "there are no pictures: name the dataset as --images"

    page = page_of(tmp_path / "r.html", random_scores(60), ReportParts(notes=(note,)))

    assert note in words(page)
    assert "0000000.png" in words(page)
    assert "<img" not in page


def test_pictures_are_small_and_have_no_metadata(photos: Path) -> None:
    path = photos / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "private"
    Image.new("RGB", (400, 300), "red").save(path, exif=exif)

    uri = to_data_uri(path.read_bytes(), LARGE)

    data = base64.b64decode(uri.removeprefix("data:image/webp;base64,"))
    (photos / "small.webp").write_bytes(data)
    with Image.open(photos / "small.webp") as picture:
        assert picture.size == (168, 224)
        assert not picture.getexif()
    assert b"private" not in data


@pytest.mark.slow
def test_pictures_are_left_out_above_the_largest_size_and_the_page_says_so(
    tmp_path: Path, photo_scores: ScoreFile
) -> None:
    images = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())

    whole = write_report(tmp_path / "whole.html", photo_scores, ReportParts(images))
    small = write_report(tmp_path / "small.html", photo_scores, ReportParts(images, max_mb=0.5))
    none = write_report(
        tmp_path / "none.html", photo_scores, ReportParts(images, max_mb=0.01, spell=as_option)
    )

    assert whole.num_bytes > 1_000_000
    assert whole.warnings == ()
    assert small.num_bytes < 500_000
    assert 0 < small.num_pictures < whole.num_pictures
    assert none.num_pictures == 0
    assert small.warnings[0].endswith("so that the file stays below 0.5 MB (max_mb)")
    assert none.warnings[0].endswith("so that the file stays below 0.01 MB (--max-mb)")
    assert small.warnings[0] in words((tmp_path / "small.html").read_text("utf-8"))


def test_an_image_that_cannot_be_read_is_a_tile_with_its_reason(
    tmp_path: Path, photos: Path, photo_scores: ScoreFile
) -> None:
    (photos / "class-00000" / "0.jpg").write_bytes(b"no image")
    images = open_images(photo_scores.provenance, photo_scores.table["sample_id"].to_pylist())

    written = write_report(tmp_path / "r.html", photo_scores, ReportParts(images))

    assert "1 picture cannot be shown, the first is class-00000/0.jpg" in written.warnings[0]
    assert 'class="blank"' in (tmp_path / "r.html").read_text("utf-8")


def test_the_same_scores_give_the_same_bytes(tmp_path: Path) -> None:
    scores = random_scores(600)

    assert page_of(tmp_path / "a.html", scores) == page_of(tmp_path / "b.html", scores)


@pytest.mark.parametrize("name", ["report.pdf", "report", "folder"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(ReportError, match=r"\.html"):
        write_report(tmp_path / name, random_scores(6), ReportParts())


def test_scores_without_any_difficulty_have_no_report(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="none of the samples has a score"):
        write_report(tmp_path / "r.html", random_scores(6, rmd=[None] * 6), ReportParts())
