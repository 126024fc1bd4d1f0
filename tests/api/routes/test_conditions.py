"""Every condition of the table, from an address to its rows and its words, against plain Python."""

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import httpx2
import numpy as np
import pyarrow as pa
import pytest
from fastapi import FastAPI

from api.results.column_conditions import HAS, IS, MAX, MIN, OPERATORS
from api.results.conditions import CONDITIONS, REVIEWED, Beside, ImageQuery, matching_rows
from api.routes.conditions import Conditions, Filter
from difficulty_service.reports.map import ImageMap
from difficulty_service.reports.map_points import GRID
from difficulty_service.reports.sample_columns import SampleColumn, to_sample_column
from difficulty_service.scores.samples import ScoredSamples
from docs.conditions import MODULE, PAGE, module, page, sentences

pytestmark = pytest.mark.anyio

SAMPLES = 300
NAMES = {0: "bird", 1: "cat", 3: "dog"}
HALF = GRID // 2
LEFT_HALF = f"-9_-9_{HALF}_-9_{HALF}_{GRID + 9}_-9_{GRID + 9}"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """A value of a condition, whether a sample fulfils it, and what a form says of it."""

    value: str
    fulfils: Callable[[Row], bool]
    words: str = ""


def share_of_id(sample_id: str, shares: int) -> int:
    """Number of a share, from 0."""
    digest = hashlib.blake2b(sample_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % shares


EXAMPLES: Mapping[str, list[Example]] = {
    "label": [Example("cat", lambda row: row["label"] == 1)],
    "near": [Example("D", lambda row: row["nearest"] in {0, 3})],
    "pmin": [Example("25", lambda row: row["percentile"] >= 0.25)],
    "pmax": [Example("75.5", lambda row: row["percentile"] <= 0.755)],
    "margin": [Example("-2", lambda row: row["suspicion"] > -2)],
    "p_wrong": [Example("0.5", lambda row: row["suspicion"] > 0)],
    "q": [Example("7.p", lambda row: "7.p" in row["id"])],
    "mark": [
        Example("drop", lambda row: row["mark"] == "drop"),
        Example("any", lambda row: row["mark"] is not None),
        Example("none", lambda row: row["mark"] is None),
    ],
    "verified": [
        Example("only", lambda row: row["verified"]),
        Example("all", lambda _: True),
    ],
    "area": [Example(LEFT_HALF, lambda row: row["x"] * GRID < HALF, "In the area of the map")],
    "like": [Example("5", lambda row: row["place"] in {5, 8, 13}, "Like one text")],
    "text": [Example(" snow ", lambda row: row["is_among_closest"], "Shows, in words")],
    "share": [
        Example("2of3", lambda row: share_of_id(row["id"], 3) == 1, "Share 2 of 3"),
    ],
}
"""Examples of each condition; the expected rows are told without NumPy or Arrow."""

COLUMN_EXAMPLES: Mapping[str, list[tuple[str, Example]]] = {
    IS: [
        ("camera", Example("A", lambda row: row["camera"] == "A")),
        ("camera", Example("(none)", lambda row: row["camera"] is None)),
        ("camera", Example("(some)", lambda row: row["camera"] is not None)),
        ("note", Example("Some Words 7", lambda row: row["note"] == "Some Words 7")),
    ],
    HAS: [("note", Example("words 1", lambda row: "words 1" in (row["note"] or "").lower()))],
    MIN: [
        ("weight", Example("2.5", lambda row: (row["weight"] or 0) >= 2.5)),
        ("taken", Example("2024-01-11", lambda row: row["taken"].day >= 11)),
    ],
    MAX: [
        ("weight", Example("2.5", lambda row: (row["weight"] or 9) <= 2.5)),
        ("taken", Example("2024-01-11", lambda row: row["taken"].day <= 11)),
    ],
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Samples in plain Python, with some missing values."""
    chance = random.Random(0)  # noqa: S311 - no secret
    closest = {*chance.sample(range(SAMPLES), 200)}  # as many as are listed
    return [
        {
            "place": place,
            "id": f"{place:03}.png",
            "label": chance.choice([0, 1, 3]),
            "nearest": chance.choice([-1, 0, 1, 3]),
            "margin": chance.choice([None, *range(-9, 9)]),
            "percentile": chance.random(),
            "suspicion": chance.uniform(-3, 3),
            "mark": chance.choice([None, None, "keep", "drop"]),
            "verified": chance.random() < 0.3,
            "x": chance.random(),
            "is_among_closest": place in closest,
            "camera": chance.choice(["A", "B", None]),
            "note": f"Some Words {place}" if place % 3 else None,
            "weight": chance.choice([None, 1.0, 2.5, 4.0]),
            "taken": datetime(2024, 1, chance.randint(1, 28), chance.randint(0, 23), tzinfo=UTC),
        }
        for place in range(SAMPLES)
    ]


@pytest.fixture(scope="module")
def samples(rows: list[dict[str, Any]]) -> ScoredSamples:
    """The same as a score file has them."""
    nan = float("nan")
    return ScoredSamples(
        ids=pa.array([row["id"] for row in rows]),
        labels=np.array([row["label"] for row in rows]),
        nearest=np.array([row["nearest"] for row in rows]),
        margins=np.array([nan if row["margin"] is None else row["margin"] for row in rows]),
        rmd=np.zeros(SAMPLES),
        agnostic=None,
        percentiles=np.array([row["percentile"] for row in rows]),
        suspicion=np.array([row["suspicion"] for row in rows]),
        copy_of=pa.nulls(SAMPLES, pa.string()),
        names=NAMES,
        verified=np.array([row["verified"] for row in rows]),
    )


def about(rows: list[dict[str, Any]], query: ImageQuery) -> Beside:
    """What conditions are about besides the scores."""
    columns: dict[str, SampleColumn] = {}
    for name in ("camera", "note", "weight", "taken"):
        column = to_sample_column(name, pa.chunked_array([pa.array([row[name] for row in rows])]))
        assert isinstance(column, SampleColumn)
        columns[name] = column
    marks = {"keep", "drop"} if query.mark in {"any", "none"} else {query.mark}
    return Beside(
        marked=[row["place"] for row in rows if row["mark"] in marks],
        drawn=ImageMap(
            np.arange(SAMPLES), np.array([[row["x"], 0.5] for row in rows]), "method", SAMPLES
        ),
        alike=[5, 13, 8],
        closeness=np.array([row["is_among_closest"] for row in rows], np.float32),
        columns=columns,
    )


async def read(address: Mapping[str, str], path: str = "/page") -> ImageQuery:
    """The query of an address, as FastAPI reads it for a page or for a list of the API."""
    app, found = FastAPI(), list[ImageQuery]()

    @app.get("/page")
    def of_page(query: Conditions) -> None:
        found.append(query)

    @app.get("/list")
    def of_list(query: Filter) -> None:
        found.append(query)

    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(f"{path}?{urlencode(address)}")
    assert answer.status_code == 200, answer.text
    return found[0]


@pytest.mark.parametrize(
    ("name", "example"), [(name, each) for name in CONDITIONS for each in EXAMPLES[name]]
)
async def test_a_condition_of_an_address_has_its_rows_and_its_words(
    rows: list[dict[str, Any]], samples: ScoredSamples, name: str, example: Example
) -> None:
    address = {"verified": "all", name: example.value}

    for path in ("/page", "/list"):
        if path == "/list" and name == "label":
            continue  # a list of scores takes exactly one class
        query = await read(address, path)
        found = matching_rows(samples, query, about(rows, query))

        expected = [row["place"] for row in rows if example.fulfils(row)]
        assert ([*range(SAMPLES)] if found is None else found.tolist()) == expected
        assert expected
        words = {name: (example.value.strip(), example.words)} if example.words else {}
        assert query.in_words("text") == words


@pytest.mark.parametrize(
    ("operator", "column", "example"),
    [(each, *example) for each in OPERATORS for example in COLUMN_EXAMPLES[each]],
)
async def test_a_condition_on_a_column_has_its_rows(
    rows: list[dict[str, Any]], samples: ScoredSamples, operator: str, column: str, example: Example
) -> None:
    query = await read({f"{operator}{column}": example.value, "verified": "all"})

    found = matching_rows(samples, query, about(rows, query))

    expected = [row["place"] for row in rows if example.fulfils(row)]
    assert found is not None
    assert found.tolist() == expected
    assert 0 < len(expected) < SAMPLES


async def test_without_a_condition_a_page_hides_what_was_decided_and_a_list_does_not(
    rows: list[dict[str, Any]], samples: ScoredSamples
) -> None:
    page_rows = matching_rows(samples, await read({}))

    assert page_rows is not None
    assert page_rows.tolist() == [row["place"] for row in rows if not row["verified"]]
    assert matching_rows(samples, await read({}, "/list")) is None


async def test_a_value_that_is_too_long_is_refused() -> None:
    for name, entry in CONDITIONS.items():
        with pytest.raises(AssertionError, match="at most"):
            await read({name: "1" * (entry.longest + 1)})


def test_only_what_looks_through_many_samples_takes_long() -> None:
    long = {
        name for name, each in EXAMPLES.items() if ImageQuery(**{name: each[0].value}).takes_long
    }

    assert long == {"q", "area", "like", "text"}
    assert all(ImageQuery(mark=name).takes_long for name in REVIEWED)
    assert ImageQuery(columns=(("is.camera", "A"),)).takes_long


def test_the_client_and_the_page_of_the_explorer_have_the_conditions_of_the_table() -> None:
    assert {*sentences()} == {*CONDITIONS}
    assert PAGE.read_text() == page(), "run: python docs/conditions.py"
    assert MODULE.read_text() == module(), "run: python docs/conditions.py"
