"""Every option of scoring a dataset reaches the command line, Python, HTTP and the form."""

import inspect
import io
import re
from typing import get_type_hints

import pytest
from rich.console import Console

import difficulty_service as ds
from difficulty_service.base.errors import ConfigError
from difficulty_service.bodies.jobs import JobCreate
from difficulty_service.cli import create_app as create_command_line
from difficulty_service.interface.keywords import ImageOptions
from difficulty_service.scores.file import SCHEMA
from difficulty_service.scores.score_columns import SCORERS
from difficulty_service.settings.options import DatasetScoring, sentence_of
from docs.keywords import MODULE, module
from docs.options import PAGE, page
from tests.service import ServiceClient, client_of

OPTIONS = list(DatasetScoring.model_fields)


@pytest.fixture(scope="module")
def help_text() -> str:
    console = Console(file=io.StringIO(), width=400)
    create_command_line().help_print(["score"], console=console)
    text = console.file.getvalue()
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> ServiceClient:
    folder = tmp_path_factory.mktemp("service")
    with client_of(folder / "data", roots={"photos": str(folder)}) as client:
        yield client


@pytest.mark.parametrize("name", OPTIONS)
def test_the_command_line_has_it_with_the_same_sentence(name: str, help_text: str) -> None:
    assert f"--{name.replace('_', '-')} " in help_text
    assert sentence_of(DatasetScoring, name) in help_text


@pytest.mark.parametrize("name", OPTIONS)
def test_python_has_it(name: str) -> None:
    assert name in get_type_hints(ImageOptions)


@pytest.mark.parametrize("name", ["scorers", "near_duplicates", "shrinkage", "matmul_dtype"])
def test_python_has_it_for_features_in_memory_with_the_same_default(name: str) -> None:
    default = inspect.signature(ds.score).parameters[name].default

    assert default == DatasetScoring.model_fields[name].default


@pytest.mark.parametrize("name", OPTIONS)
def test_a_job_has_it_with_the_same_schema(name: str, client: ServiceClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    expected = DatasetScoring.model_json_schema()["properties"][name]
    if expected["default"] is None:
        del expected["default"]  # OpenAPI leaves it out

    assert schemas["JobCreate"]["properties"][name] == expected
    assert JobCreate.model_fields[name].default == DatasetScoring.model_fields[name].default


@pytest.mark.parametrize("name", OPTIONS)
def test_the_form_has_it_with_the_same_sentence(name: str, client: ServiceClient) -> None:
    page = client.get("/").text

    assert f'name="{name}"' in page
    assert sentence_of(DatasetScoring, name) in page


def test_every_scorer_is_offered_everywhere(help_text: str, client: ServiceClient) -> None:
    page = client.get("/").text

    for scorer in SCORERS.values():
        assert scorer.name in help_text
        assert f'name="scorers" value="{scorer.name}"' in page
        assert scorer.sentence in page


def test_every_scorer_fills_a_column_and_only_its_own() -> None:
    filled = [column for scorer in SCORERS.values() for column in scorer.columns]

    assert all(scorer.columns for scorer in SCORERS.values())
    assert len(set(filled)) == len(filled)
    assert set(filled) <= set(SCHEMA.names)


def test_the_keywords_of_python_are_made_of_them() -> None:
    assert MODULE.read_text() == module(), "run: python docs/keywords.py"


def test_a_keyword_has_the_sentence_of_its_option_or_one_of_its_own() -> None:
    text = " ".join(MODULE.read_text().split())

    assert sentence_of(DatasetScoring, "flip") in text
    assert sentence_of(DatasetScoring, "classes") not in text
    assert "by a CLIP: a list, or a text with commas between" in text


def test_the_page_of_options_is_made_of_them() -> None:
    assert PAGE.read_text() == page(), "run: python docs/options.py"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"augment_runs": 101}, "augment_runs=101 should be less than or equal to 100"),
        ({"limit": 0}, "limit=0 should be greater than or equal to 1"),
        ({"seed": -1}, "seed=-1 should be greater than or equal to 0"),
    ],
)
def test_python_has_the_same_bounds(option: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ds.score_dataset("photos", **option)
