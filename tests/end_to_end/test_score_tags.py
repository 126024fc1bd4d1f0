"""The tags of a table of images are judged by one command, and by Python, as by two commands."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import difficulty_service as ds
from difficulty_service.base.errors import ConfigError, DatasetError, Setting
from difficulty_service.bodies.jobs import JobCreate
from difficulty_service.cli import create_app
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.given_tags import open_given_tags
from difficulty_service.settings.options import TagOptions
from tests.factories import MISSING_TAG, WRONG_TAG, write_tagged_images

Run = Callable[..., None]

pytestmark = [pytest.mark.analysis("tags"), pytest.mark.usefixtures("small_networks")]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tagged_images(tmp_path_factory.mktemp("tagged") / "photos.parquet")


@pytest.fixture(scope="module")
def command() -> Run:
    """Runs a command in this process, which ends the test where it fails."""

    def run(*words: object) -> None:
        create_app()([*map(str, words)], result_action="return_value")

    return run


def test_one_command_and_python_judge_tags_as_two_commands_do(
    command: Run, photos: Path, tmp_path: Path
) -> None:
    features, two, one = (tmp_path / name for name in ("f", "two.parquet", "one.parquet"))
    command("extract", photos, "--unlabelled", "--backbone", "small", "--out", features)
    command("tags", features, photos, "--columns", "tags", "--out", two)

    command("score", photos, "--tags", "tags", "--backbone", "small", "--out", one)
    found = ds.score_dataset(str(photos), tags=["tags"], backbone="small", progress=False)

    expected = read_scores(two)
    assert read_scores(one).table == found.table == expected.table
    assert read_scores(one).provenance.tags == expected.provenance.tags
    assert found.tags == pq.read_table(tmp_path / "one.by-tag.parquet")
    assert found.tags == pq.read_table(tmp_path / "two.by-tag.parquet")
    doubtful = [row for row in found.table.to_pylist() if row["p_wrong"] > 0.5]
    assert {row["sample_id"] for row in doubtful} == {
        f"photos.parquet#{image}#{tag}" for image, tag in (WRONG_TAG, MISSING_TAG)
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scorers", "rmd"], "--scorers cannot be used with --tags"),
        (["--label-column", "tags"], "--label-column cannot be used with --tags"),
        (["--augment-runs", "2"], "--augment-runs cannot be used with --tags"),
        (["--marks", "marks.csv"], "--marks cannot be used with --tags"),
        (["--json"], "--json cannot be used with --tags"),
    ],
)
def test_a_command_refuses_what_changes_nothing_about_tags(
    command: Run, photos: Path, words: list[str], said: str
) -> None:
    with pytest.raises(WrongCall, match=said):
        command("score", photos, "--tags", "tags", "--out", "x.parquet", *words)


@pytest.mark.parametrize(
    "option",
    [{"near_duplicates": 0.9}, {"shrinkage": "none"}, {"clusters": 2}, {"unlabelled": True}],
)
def test_a_job_refuses_what_changes_nothing_about_tags(option: dict[str, object]) -> None:
    (name,) = option

    with pytest.raises(ValueError, match=f"so {name} cannot be used"):
        JobCreate(dataset={"root": "photos", "path": ""}, tags="tags", **option)


def test_a_separator_needs_tags() -> None:
    with pytest.raises(ValueError, match="there are no tags to separate"):
        JobCreate(dataset={"root": "photos", "path": ""}, tag_separator=";")


def test_python_refuses_labels_beside_tags_and_images_in_memory(photos: Path) -> None:
    with pytest.raises(ConfigError, match="so classes cannot be used with tags"):
        ds.score_dataset(str(photos), tags="tags", classes="cat,dog")
    with pytest.raises(ConfigError, match="in a table that is a file"):
        ds.score_dataset({"image": []}, tags="tags")


def test_a_column_that_is_not_there_is_found_out_before_an_image_is_read(
    photos: Path, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match="no column 'tag'"):
        ds.score_dataset(str(photos), tags="tag", out=tmp_path / "x.parquet", progress=False)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("header", "rows", "option"),
    [
        ("path,in water,is dog", ["0,1", "1,0"], "tags"),
        ("path,tags", ["a;b", "b"], "tag_separator"),
    ],
)
def test_a_remedy_names_the_option_that_scoring_has(
    tmp_path: Path, header: str, rows: list[str], option: str
) -> None:
    lines = [f"{number}.png,{row}" for number, row in enumerate(rows)]
    (tmp_path / "a.csv").write_text("\n".join([header, *lines]))

    with pytest.raises(DatasetError) as caught:
        open_given_tags(str(tmp_path / "a.csv"), TagOptions(tags="auto"), DatasetOptions())

    settings = [part.parameter for part in caught.value.remedy if isinstance(part, Setting)]
    assert settings == [option]
    assert caught.value.parameter == option


def test_columns_with_a_blank_at_an_end_are_found(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"path": ["0.png", "1.png"], " in water": [0, 1], "is dog ": [1, 0]}),
        tmp_path / "a.parquet",
    )

    found = open_given_tags(
        str(tmp_path / "a.parquet"), TagOptions(tags="in water, is dog"), DatasetOptions()
    )

    assert found is not None
    assert found.columns == (" in water", "is dog ")
