"""The columns of a score file are declared once, and so described on their page and in the API."""

from difficulty_service.bodies.results import ScoreRow
from difficulty_service.scores.file import SCHEMA
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scores.score_columns import COLUMNS
from docs.columns import PAGE, page


def test_the_tables_of_the_score_file_are_made_of_its_columns_and_keys() -> None:
    assert PAGE.read_text() == page(), "run: python docs/columns.py"


def test_every_column_and_every_key_is_described() -> None:
    columns = [cell for column in COLUMNS.values() for cell in (column.values, column.sentence)]
    keys = [field.description for field in Provenance.model_fields.values()]

    assert list(COLUMNS) == SCHEMA.names
    assert all(columns)
    assert all(keys)


def test_the_service_describes_each_column_as_the_page_does() -> None:
    described = {name: field.description or "" for name, field in ScoreRow.model_fields.items()}

    assert [name for name in COLUMNS if name not in described] == []
    assert [
        column.name
        for column in COLUMNS.values()
        if not column.required and not described[column.name].startswith(column.sentence)
    ] == []
