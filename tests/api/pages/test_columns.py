"""Columns of a table beside the scores filter, order and caption the images, and name views."""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from api.app import create_app
from api.explore import ExploreOptions, explorer_settings, join_columns
from api.explored import ExploredFile, add_round
from api.pages.faults import IN_WORDS
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.scores.file import ScoreFile, to_schema
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring.image_faults import FAULT_NAMES
from tests.factories import score_table

SAMPLES = 30
HOSTILE = '<script>alert("1")</script>&is.camera=B'
CAMERAS = ["A", "B", "<b>C</b>"]
WEIGHTS = [None if row == 4 else row / 4 for row in range(SAMPLES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with columns of every kind beside the scores."""
    folder = tmp_path_factory.mktemp("columns")
    rows = range(SAMPLES)
    table = {
        "sample_id": [f"{row:02}.png" for row in rows],
        "camera": [None if row == 3 else CAMERAS[row % 3] for row in rows],
        "weight": WEIGHTS,
        "taken": pa.array([86400 * row for row in rows], pa.timestamp("s")),
        "note": [f"{row} {'x' * 300}" for row in rows],
        HOSTILE: [row % 2 == 0 for row in rows],
        "country": [f"country {row % 10}" for row in rows],
    }
    pq.write_table(pa.table(table), folder / "table.parquet")
    return folder


def scores_of(rows: Iterable[int]) -> ScoreFile:
    """The scores of some of the samples."""
    rows = list(rows)
    scores = score_table(
        [row % 2 for row in rows],
        ids=[f"{row:02}.png" for row in rows],
        rmd=[float(row) for row in rows],
        nearest_label=[row % 2 for row in rows],
        label_margin=[-1.0 for _ in rows],
        percentile=[row / SAMPLES for row in rows],
    )
    return ScoreFile(scores, Provenance.of({"class_names": ["cat", "dog"]}))


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> Iterator[TestClient]:
    content = scores_of(range(SAMPLES))
    scores_file = tmp_path / "scores.parquet"
    settings = explorer_settings(scores_file, str(folder), 0)
    settings.data_dir.mkdir()
    explored = ExploredFile(scores_file, str(folder), settings)
    job = add_round(explored, content)
    options = ExploreOptions(scores_file, columns=[str(folder / "table.parquet")])
    notes = join_columns(explored, content, options)
    assert notes == ()
    with TestClient(create_app(settings), base_url=f"http://localhost/jobs/{job.id}/") as client:
        yield client


def listed(page: str) -> list[int]:
    """Rows of the images of a page, in their order."""
    return [int(row) for row in re.findall(r'<li class="card" id="image-(\d+)"', page)]


def rows_of(client: TestClient, *parameters: tuple[str, str], sort: str = "file") -> list[int]:
    return listed(client.get(f"images?{urlencode([*parameters, ('sort', sort)])}").text)


def test_a_category_is_one_of_its_values(client: TestClient) -> None:
    of_a = [row for row in range(SAMPLES) if row % 3 == 0 and row != 3]
    of_c = [row for row in range(SAMPLES) if row % 3 == 2]

    assert rows_of(client, ("is.camera", "A")) == of_a
    assert rows_of(client, ("is.camera", "A"), ("is.camera", "<b>C</b>")) == sorted(of_a + of_c)
    assert rows_of(client, ("is.camera", "(none)")) == [3]
    assert rows_of(client, ("is.camera", "A"), (f"is.{HOSTILE}", "true")) == [
        row for row in of_a if row % 2 == 0
    ]


@pytest.fixture
def open_scores(folder: Path, tmp_path: Path) -> Iterator[Callable[[pa.Array | None], TestClient]]:
    """Pages of scores that name these faults; None for scores that do not tell how images look."""
    with ExitStack() as clients:

        def open_them(faults: pa.Array | None) -> TestClient:
            content = scores_of(range(SAMPLES))
            if faults is not None:
                table = content.table.append_column("image_fault", faults.dictionary_encode())
                content = replace(content, table=to_schema(table))
            settings = explorer_settings(tmp_path / "scores.parquet", str(folder), 0)
            settings.data_dir.mkdir()
            job = add_round(
                ExploredFile(tmp_path / "scores.parquet", str(folder), settings), content
            )
            client = TestClient(create_app(settings), base_url=f"http://localhost/jobs/{job.id}/")
            return clients.enter_context(client)

        yield open_them


def asked_for(client: TestClient, condition: str) -> Response:
    """What REST answers."""
    return client.get(f"http://localhost/v1{client.base_url.path}scores?{condition}")


def ids_of(client: TestClient, condition: str) -> list[str]:
    """Ids of the samples that REST lists."""
    answer = asked_for(client, condition).raise_for_status().json()
    return sorted(row["sample_id"] for row in answer["samples"])


def marked(client: TestClient) -> dict[int, str]:
    address = f"http://localhost/v1{client.base_url.path}marks"
    return {each["row"]: each["mark"] for each in client.get(address).json()["marks"]}


def test_images_with_a_fault_are_kept_or_dropped_on_a_page_of_their_own(
    open_scores: Callable[[pa.Array | None], TestClient],
) -> None:
    faults = [{4: "dark", 5: "dark", 7: "blurred"}.get(row) for row in range(SAMPLES)]
    client = open_scores(pa.array(faults))

    page = client.get("faults").text
    one = client.post("faults", data={"fault": "dark", "row": "4", "mark": "drop"}).text
    client.post("faults", data={"fault": "dark", "mark": "keep"})
    others = marked(client)
    client.post("faults", data={"fault": "dark", "mark": "none"})
    refused = client.post("faults", data={"fault": "dark", "row": "7", "mark": "drop"})

    assert "2 very dark</h2>" in page
    assert "1 blurred</h2>" in page
    assert "At night that may be right." in page
    assert "Drop 2</button>" in page
    assert "Drop 1</button>" in one
    assert '<span class="copy">drop</span>' in one
    assert others == {4: "drop", 5: "keep"}
    assert marked(client) == {}
    assert refused.status_code == 422


def test_every_fault_is_described_in_plain_words() -> None:
    assert list(IN_WORDS) == list(FAULT_NAMES)


def test_scores_that_do_not_tell_how_images_look_have_no_page_of_faults_in_their_tabs(
    open_scores: Callable[[pa.Array | None], TestClient],
) -> None:
    page = open_scores(None).get("images").text

    assert ">Copies</a>" in page
    assert ">Faults</a>" not in page


def test_faults_of_images_filter_without_being_asked_for(
    open_scores: Callable[[pa.Array | None], TestClient],
) -> None:
    faults = [{4: "dark", 7: "blurred"}.get(row) for row in range(SAMPLES)]

    client = open_scores(pa.array(faults))

    assert rows_of(client, ("is.image_fault", "dark")) == [4]
    assert rows_of(client, ("is.image_fault", "(some)")) == [4, 7]
    assert ids_of(client, "is.image_fault=dark") == ["04.png"]
    assert ids_of(client, "is.image_fault=(some)") == ["04.png", "07.png"]
    assert ids_of(client, "is.image_fault=cut off") == []  # a fault that no image has
    assert "did you mean 'dark'?" in asked_for(client, "is.image_fault=darkk").json()["detail"]
    page = client.get("images").text
    assert re.findall(r'name="is.image_fault" value="([^"]+)"', page) == [
        *("blurred", "dark", "(some)", "(none)")
    ]


def test_where_no_image_has_a_fault_there_is_no_filter_and_a_condition_finds_none(
    open_scores: Callable[[pa.Array | None], TestClient],
) -> None:
    client = open_scores(pa.nulls(SAMPLES, pa.string()))

    assert "image_fault" not in client.get("images").text
    assert "image_fault" not in client.get("images/3").text
    assert ids_of(client, "is.image_fault=dark") == ids_of(client, "is.image_fault=(some)") == []
    assert len(ids_of(client, "is.image_fault=(none)")) == SAMPLES


def test_where_scores_do_not_tell_how_images_look_a_condition_on_faults_says_so(
    open_scores: Callable[[pa.Array | None], TestClient],
) -> None:
    client = open_scores(None)

    refused = asked_for(client, "is.image_fault=dark")

    assert refused.status_code == 422
    assert "do not tell how images look" in refused.json()["detail"]
    assert refused.json()["field"] == "is.image_fault"
    assert "image_fault" not in client.get("images").text
    assert "do not tell how images look" in client.get("images?is.image_fault=dark").text


def test_a_range_includes_both_ends_and_no_sample_without_a_value(client: TestClient) -> None:
    assert rows_of(client, ("min.weight", "0.5"), ("max.weight", "1.5")) == [2, 3, 5, 6]
    assert rows_of(client, ("min.weight", "-inf")) == [
        row for row in range(SAMPLES) if WEIGHTS[row] is not None
    ]


def test_the_last_day_of_a_range_is_whole(client: TestClient) -> None:
    assert rows_of(client, ("min.taken", "1970-01-03"), ("max.taken", "1970-01-05")) == [2, 3, 4]
    assert rows_of(client, ("min.taken", "1970-01-28T00:30")) == [28, 29]
    assert rows_of(client, ("min.taken", "1970-01-28T00:30+01:00")) == [27, 28, 29]


def test_a_text_contains_another_whatever_its_case(client: TestClient) -> None:
    assert rows_of(client, ("has.note", "27 XXX")) == [27]


def test_images_are_in_the_order_of_a_column_those_without_a_value_last(client: TestClient) -> None:
    known = [row for row in range(SAMPLES) if WEIGHTS[row] is not None]

    assert rows_of(client, sort="desc.weight") == [*reversed(known), 4]
    assert rows_of(client, sort="asc.weight") == [*known, 4]
    assert rows_of(client, sort="asc.camera")[-1] == 3


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("is.Camera", "A", "there is no column 'Camera'; did you mean 'camera'?"),
        ("is.camera", "D", "no value 'D'"),
        ("has.camera", "A", "ask for is.camera"),
        ("min.note", "1", "ask for has.note"),
        ("is.weight", "1", "ask for min.weight"),
        ("min.weight", "heavy", "'heavy' is not a number"),
        ("min.weight", "nan", "'nan' is not a number"),
        ("max.taken", "9999-12-31", "is not a date"),
        ("max.taken", "yesterday", "is not a date"),
        ("sort", "asc.note", "which have no order here"),
        ("sort", "asc.nothing", "there is no column 'nothing'"),
    ],
)
def test_a_condition_that_does_not_fit_is_explained(
    client: TestClient, name: str, value: str, message: str
) -> None:
    page = client.get(f"images?{urlencode({name: value})}")
    answer = client.get(f"../../v1{client.base_url.path}scores?{urlencode({name: value})}")

    assert page.status_code == 200
    assert message in html.unescape(page.text)
    if name != "sort":
        assert answer.status_code == 422
        assert answer.json()["field"] == name


def test_too_long_and_too_many_conditions_are_refused(client: TestClient) -> None:
    for parameters in ([("is.x" * 400, "1")], [(f"is.{each}", "1") for each in range(201)]):
        answer = client.get(f"images?{urlencode(parameters)}")

        assert answer.status_code == 422


def test_the_form_has_a_filter_for_each_column_with_its_values_and_counts(
    client: TestClient,
) -> None:
    page = client.get("images?is.camera=A&is.country=country+3&min.taken=1970-01-03").text
    form = html.unescape(page[page.index('id="filters"') : page.index("</form>")])

    assert 'name="is.camera" value="A" checked> ' in form
    assert '<bdi>(none)</bdi></span> <span class="count">1</span>' in form
    assert '<option value="country 3" selected>country 3 (3)</option>' in form
    assert 'type="date" name="min.taken" value="1970-01-03"' in form
    assert 'type="search" name="has.note"' in form
    assert '<option value="desc.taken">taken, latest first</option>' in form


def test_names_and_values_of_columns_are_escaped(client: TestClient) -> None:
    page = client.get(
        f"images?{urlencode({f'is.{HOSTILE}': 'true', 'is.camera': '<b>C</b>'})}"
    ).text
    one = client.get("images/2").text

    for text in (page, one):
        assert "<script>alert" not in text
        assert "<b>C</b>" not in text
    assert listed(page) == [2, 8, 14, 20, 26]


def test_captions_name_the_columns_that_filter_or_order(client: TestClient) -> None:
    plain = client.get("images?sort=file").text
    page = client.get("images?is.camera=A&sort=desc.weight").text
    caption = re.search(r'<div class="caption">.*?</div>', page)[0]  # type: ignore[index]

    assert "column-name" not in plain
    assert re.findall(r"<bdi>(.*?)</bdi>", caption)[1:] == ["camera", "A", "weight", "6.75"]


def test_the_page_of_an_image_has_all_its_columns_and_the_steps_of_the_list(
    client: TestClient,
) -> None:
    page = client.get("images/6?is.camera=A&is.camera=B&sort=desc.taken").text

    facts = dict(re.findall(r"<dt><bdi>(.*?)</bdi></dt><dd>(.*?)</dd>", page))
    assert facts["camera"] == "<bdi>A</bdi>"
    assert facts["taken"] == "<bdi>1970-01-07</bdi>"
    assert len(facts["note"]) < 220
    assert re.findall(r'rel="(\w+)" href="[^"]*/images/(\d+)\?', page) == [
        ("prev", "7"),
        ("next", "4"),
    ]
    assert page.count("?sort=desc.taken&amp;is.camera=A&amp;is.camera=B") >= 3


def test_all_filtered_by_a_column_are_marked(client: TestClient) -> None:
    client.post("images/mark-matching?is.camera=B", data={"mark": "drop"})

    assert rows_of(client, ("mark", "drop")) == [row for row in range(SAMPLES) if row % 3 == 1]


def test_every_round_has_the_columns_of_its_samples(folder: Path, tmp_path: Path) -> None:
    scores_file = tmp_path / "scores.parquet"
    settings = explorer_settings(scores_file, str(folder), 0)
    settings.data_dir.mkdir()
    explored = ExploredFile(scores_file, str(folder), settings)
    before = add_round(explored, scores_of(range(SAMPLES)))
    ReviewFolder(scores_file).remember([MarkedSample("01.png", Mark.DROP)])
    following = scores_of(row for row in reversed(range(SAMPLES)) if row != 1)
    after = add_round(explored, following, before.id)

    options = ExploreOptions(scores_file, columns=[str(folder / "table.parquet")])
    join_columns(explored, following, options)

    with TestClient(create_app(settings), base_url="http://localhost/jobs/") as client:
        listed_before, listed_after = (
            listed(client.get(f"{job.id}/images?is.camera=B&sort=asc.weight").text)
            for job in (before, after)
        )
    of_b = [row for row in range(SAMPLES) if row % 3 == 1]
    # Row 4 has no weight, and comes last.
    assert listed_before == [1, *of_b[2:], 4]
    assert [SAMPLES - 1 - row for row in listed_after] == [*of_b[2:], 4]

    join_columns(explored, following, ExploreOptions(scores_file))
    with TestClient(create_app(settings), base_url="http://localhost/jobs/") as client:
        page = client.get(f"{after.id}/images?is.camera=B").text
    assert "there is no column" in page
    assert "--columns TABLE" in page


def test_the_scores_over_http_take_the_same_conditions(client: TestClient) -> None:
    address = f"../../v1{client.base_url.path}scores"
    query = [("is.camera", "A"), ("pmin", "50"), ("sort", "rmd"), ("limit", "2")]
    rows, after = [], {}
    while True:
        page = client.get(f"{address}?{urlencode([*query, *after.items()])}").json()
        rows += [row["sample_id"] for row in page["samples"]]
        assert page["matching"] == 5
        if page["next"] is None:
            break
        after = {"after": page["next"]}

    assert rows == [f"{row}.png" for row in (15, 18, 21, 24, 27)]
    other = client.get(f"{address}?is.camera=B&sort=rmd&limit=2&after={after['after']}")
    assert "other conditions; leave it out" in other.json()["detail"]


def test_a_view_keeps_the_conditions_under_a_name(client: TestClient, tmp_path: Path) -> None:
    query = "?sort=desc.taken&is.camera=%3Cb%3EC%3C%2Fb%3E&is.camera=A"

    saved = client.post(f"images/views{query}", data={"name": " <i>mine "}, follow_redirects=False)
    page = client.get("images").text

    assert saved.headers["location"].endswith(f"/images{query}")
    link = html.unescape(re.findall(r'href="([^"]*)"><bdi>&lt;i&gt;mine</bdi>', page)[0])
    link = f"images{link.partition('/images')[2]}"
    assert listed(client.get(link).text) == listed(client.get(f"images{query}").text)
    assert (tmp_path / "scores.explorer" / "views.json").exists()

    client.post("images/views/delete", data={"name": "<i>mine"})
    assert "mine" not in client.get("images").text


def test_a_view_that_is_saved_again_is_replaced(client: TestClient) -> None:
    for sort in ("hardest", "easiest"):
        client.post(f"images/views?sort={sort}", data={"name": "mine"})

    page = client.get("images?sort=file").text

    assert re.findall(r'images\?sort=(\w+)"><bdi>mine', page) == ["easiest"]


@pytest.mark.slow
def test_a_view_that_cannot_be_kept_is_explained(client: TestClient) -> None:
    assert client.post("images/views", data={"name": " "}).status_code == 422
    assert client.post("images/views", data={"name": "x" * 101}).status_code == 422
    for number in range(100):
        client.post("images/views", data={"name": f"view {number}"}, follow_redirects=False)

    answer = client.post("images/views", data={"name": "one more"})

    assert answer.status_code == 409
    assert "there are 100 views already" in answer.text


def test_views_that_cannot_be_read_are_put_aside(client: TestClient, tmp_path: Path) -> None:
    views = tmp_path / "scores.explorer" / "views.json"
    views.write_text('[{"name": "x", "query": "javascript:alert(1)"}]')

    page = client.get("images").text

    assert "javascript" not in page
    assert views.with_name("views.damaged.json").exists()


def test_images_like_one_need_features(client: TestClient) -> None:
    assert "no features to compare" in client.get("images?like=3").text
    assert "there is no image" in client.get("images?like=30").text
    assert listed(client.get("images?sort=alike").text)


def test_the_values_of_a_column_that_is_free_text_or_not_there_colour_no_map(
    client: TestClient,
) -> None:
    answers = {
        name: client.get("map/column", params={"name": name}) for name in (HOSTILE, "note", "other")
    }

    assert answers[HOSTILE].json()["names"] == ["false", "true"]
    assert [answers[name].status_code for name in ("note", "other")] == [404, 404]
