"""Texts through the command line: from a table to features, scores and cleaned lists."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from difficulty_service.features.description import RecordedOptions
from difficulty_service.features.store import open_store
from difficulty_service.scores.file import read_scores
from tests.end_to_end.conftest import Command

SPORT = ("goal", "team", "coach", "season", "league", "striker", "match", "referee")
SPACE = ("orbit", "rocket", "moon", "launch", "probe", "comet", "lander", "shuttle")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    texts: list[str | None] = [
        f'{" ".join(random.choice(words, 12))}\nsaid "so",\nand left'
        for words in (SPORT, SPACE)
        for _ in range(60)
    ]
    labels = ["sport"] * 60 + ["space"] * 60
    labels[3] = "space"
    texts[5], texts[7] = None, "  \n"
    columns = {"text": texts, "label": labels, "key": [f"t{row}" for row in range(120)]}
    pq.write_table(pa.table(columns), tmp_path / "texts.parquet")
    return tmp_path / "texts.parquet"


@pytest.mark.slow
def test_a_wrong_label_among_texts_is_the_most_suspicious(
    difficulty: Command, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scores.parquet"

    ran = difficulty(
        *("score", table, "--modality", "text", "--id-column", "key"),
        *("--out", out),
    )

    assert ran.returncode == 0, ran.stderr
    assert "118 of 120 texts have features" in ran.stdout
    assert "of 118 labels are probably wrong" in ran.stdout
    assert "image" not in ran.stdout
    scores = read_scores(out)
    rows = scores.table.sort_by([("suspicion", "descending")]).to_pylist()
    assert rows[0]["sample_id"] == "t3"
    description = open_store(tmp_path / "scores.features").description
    assert description.modality == "text"
    assert description.backbone == "builtin-text"
    assert description.dataset_options == RecordedOptions(id_column="key", text_column="text")
    errors = pq.read_table(tmp_path / "scores.features" / "errors.parquet").to_pylist()
    assert {each["sample_id"]: each["reason"] for each in errors} == {
        "t5": "no text: the cell is empty",
        "t7": "no text: only white space",
    }


def test_text_that_looks_like_numbers_is_read_from_csv(difficulty: Command, tmp_path: Path) -> None:
    lines = [f"{row % 2}{row},{'ab'[row % 2]}" for row in range(40)]
    (tmp_path / "texts.csv").write_text("\n".join(["body,label", *lines]))

    ran = difficulty(
        *("extract", tmp_path / "texts.csv", "--modality", "text", "--text-column", "body"),
        *("--out", tmp_path / "features"),
    )

    assert ran.returncode == 0, ran.stderr
    assert "40 of 40 texts have features" in ran.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--modality", "text", "--flip"), "--flip would change nothing"),
        (("--modality", "text", "--corrupt", "fog:1"), "--corrupt would change nothing"),
        (("--modality", "text", "--features", "projected"), "--features would change nothing"),
        (("--modality", "text", "--backbone", "builtin"), "those for texts are builtin-text"),
        (("--modality", "text", "--text-column", "nothing"), "no column 'nothing'"),
        (("--modality", "text", "--precision", "bf16"), "fp32 only"),
        (("--backbone", "builtin-text", "--image-column", "text"), "--modality text"),
        (("--text-column", "nothing"), "no column 'nothing'"),
    ],
)
def test_what_does_not_apply_is_an_error(
    difficulty: Command, table: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    ran = difficulty("extract", table, "--out", tmp_path / "features", *options)

    assert ran.returncode != 0
    assert message in " ".join(ran.stderr.split())


def test_a_table_of_texts_that_is_taken_for_one_of_images_says_which_option_it_needs(
    difficulty: Command, tmp_path: Path
) -> None:
    table = tmp_path / "texts.csv"
    table.write_text("text,label\na cat,0\na dog,1\n")

    ran = difficulty("extract", table, "--out", tmp_path / "features")

    assert ran.returncode == 1
    assert "for texts, pass --text-column text" in " ".join(ran.stderr.split())


def test_texts_are_not_read_from_folders(difficulty: Command, tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)

    ran = difficulty("extract", tmp_path / "photos", "--modality", "text", "--out", tmp_path / "f")

    assert ran.returncode == 1
    assert "texts are read from tables" in " ".join(ran.stderr.split())


def test_the_list_of_backbones_says_what_each_encodes(difficulty: Command) -> None:
    ran = difficulty("backbones")

    listed = " ".join(ran.stdout.split())
    assert "1024 features of texts, in the package" in listed.partition(" builtin-text ")[2]
    assert "of texts" not in listed.partition(" builtin-text ")[0]


@pytest.fixture
def scores(difficulty: Command, table: Path, tmp_path: Path) -> Path:
    out = tmp_path / "scores.parquet"
    ran = difficulty("score", table, "--modality", "text", "--id-column", "key", "--out", out)
    assert ran.returncode == 0, ran.stderr
    return out


@pytest.mark.slow
def test_the_report_shows_texts_escaped_and_cut(difficulty: Command, tmp_path: Path) -> None:
    texts = [f"{'cat' if row % 2 else 'dog'} <b>&{row} " * 100 for row in range(40)]
    columns = {"text": texts, "label": [row % 2 for row in range(40)]}
    columns["label"][3] = 0
    pq.write_table(pa.table(columns), tmp_path / "long.parquet")
    out, page = tmp_path / "scores.parquet", tmp_path / "report.html"

    ran = difficulty(
        *("score", tmp_path / "long.parquet", "--modality", "text", "--out", out),
        *("--report", page),
    )

    assert ran.returncode == 0, ran.stderr
    html = page.read_text()
    assert '<span class="blank excerpt" dir="auto">cat &lt;b&gt;&amp;3 cat' in html
    assert "<b>&3" not in html
    assert "…</span>" in html


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cleaned.parquet", "cleaned.csv"])
def test_a_cleaned_list_has_the_texts_and_is_scored_again(
    difficulty: Command, scores: Path, tmp_path: Path, name: str
) -> None:
    cleaned = tmp_path / name

    ran = difficulty("clean", scores, "--drop", "label_margin > 0", "--out", cleaned)
    again = difficulty("score", cleaned, "--modality", "text", "--out", tmp_path / "again.parquet")

    assert ran.returncode == 0, ran.stderr
    assert again.returncode == 0, again.stderr
    assert "117 of 117 texts have features" in again.stdout


@pytest.mark.slow
def test_texts_are_tasks_of_label_studio(
    difficulty: Command, scores: Path, table: Path, tmp_path: Path
) -> None:
    ran = difficulty("export", scores, "--to", "labelstudio", "--out", tmp_path / "exported")

    assert ran.returncode == 0, ran.stderr
    tasks = json.loads((tmp_path / "exported" / "tasks.json").read_text())
    texts = pq.read_table(table)["text"].to_pylist()
    ranked = pq.read_table(scores, columns=["sample_id", "label_margin"])
    worst = ranked.sort_by([("label_margin", "descending")])["sample_id"][0].as_py()
    assert tasks[0]["data"]["text"] == texts[int(worst.removeprefix("t"))]
    (result,) = tasks[0]["predictions"][0]["result"]
    assert (result["to_name"], result["value"]["choices"]) == (
        "text",
        [tasks[0]["data"]["given_label"]],
    )
    view = ET.fromstring((tmp_path / "exported" / "label_config.xml").read_text())  # noqa: S314
    assert view.find("Text").attrib == {"name": "text", "value": "$text"}
    assert view.find("Choices").get("toName") == "text"


@pytest.mark.slow
def test_texts_are_exported_to_a_hugging_face_dataset(
    difficulty: Command, scores: Path, table: Path, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")

    ran = difficulty("export", scores, "--to", "huggingface", "--out", tmp_path / "exported")
    refused = difficulty("export", scores, "--to", "fiftyone", "--out", tmp_path / "other")

    assert ran.returncode == 0, ran.stderr
    rows = datasets.load_from_disk(tmp_path / "exported")
    assert rows[0]["text"] == pq.read_table(table)["text"][0].as_py()
    assert refused.returncode == 1
    assert "the samples are texts" in " ".join(refused.stderr.split())
