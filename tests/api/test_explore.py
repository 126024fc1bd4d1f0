"""A score file is explored without a service, and marks stay with it."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from safetensors.torch import save_file

from api.app import create_app
from api.explore import ExploreOptions, explore, explorer_settings
from api.explored import ExploredFile, Rounds, why_not_again
from api.imported import add_features, find_errors, import_scores, root_and_path
from api.jobs.files import TSNE_FILE, attempt_prefix
from api.jobs.store import Job
from api.storage.artifacts import open_artifacts
from api.storage.database import open_database
from difficulty_service.base.checksums import ChangedFile
from difficulty_service.base.errors import ConfigError
from difficulty_service.features.errors_file import BadImage, write_errors
from difficulty_service.scores.file import ScoreFile, read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import png_of, score_table, store_of


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """Scores of four pictures of two classes, in CSV."""
    ids = []
    for name, colour in (("cat", "red"), ("dog", "blue")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            image = png_of(colour, (20 + number, 20))
            (tmp_path / "photos" / name / f"{number}.png").write_bytes(image)
            ids.append(f"{name}/{number}.png")
    table = score_table(
        [0, 0, 1, 1],
        ids=ids,
        rmd=[4.0, 3.0, 2.0, None],
        nearest_label=[1, 0, 1, None],
        label_margin=[2.0, -1.0, -2.0, None],
        percentile=[1.0, 0.5, 0.0, None],
    )
    provenance = {
        "class_names": ["cat", "dog"],
        "dataset": str(tmp_path / "photos"),
        "dataset_options": {},
        "backbone": "builtin",
    }
    write_scores(tmp_path / "scores.csv", table, Provenance.of(provenance))
    return tmp_path / "scores.csv"


def opened(scores: Path, errors: Sequence[BadImage] = ()) -> tuple[TestClient, Job]:
    content = read_scores(scores)
    location = str(content.provenance.dataset)
    settings = explorer_settings(scores, location, 0)
    with open_database(settings) as engine:
        artifacts = open_artifacts(settings.artifact_root)
        job = import_scores(engine, artifacts, content, location, errors)
    return TestClient(create_app(settings), base_url="http://localhost"), job


def test_the_images_of_the_file_are_shown(scores: Path) -> None:
    client, job = opened(scores)

    with client:
        summary = client.get(f"/jobs/{job.id}").text
        images = client.get(f"/jobs/{job.id}/images?sort=hardest").text
        picture = client.get(f"/jobs/{job.id}/images/2/picture")

    assert "<b>1</b> of 3 images looks more like another class than its own." in summary
    assert [images.index(f'id="image-{row}"') for row in range(4)] == sorted(
        images.index(f'id="image-{row}"') for row in range(4)
    )
    assert picture.headers["content-type"] == "image/jpeg"


def test_a_file_that_another_program_wrote_again_is_shown_with_the_classes_of_its_rows(
    scores: Path,
) -> None:
    again = scores.with_name("again.parquet")
    faults = pa.array(["blurred", None, "dark", "blurred"])
    table = read_scores(scores).table.append_column("image_fault", faults)
    table.to_pandas().to_parquet(again)
    with pytest.warns(ChangedFile, match="has lost the key 'difficulty'"):
        content = read_scores(again)
    location = str(scores.with_name("photos"))
    settings = explorer_settings(again, location, 0)
    with open_database(settings) as engine:
        job = import_scores(engine, open_artifacts(settings.artifact_root), content, location)

    with TestClient(create_app(settings), base_url="http://localhost") as client:
        summary = client.get(f"/jobs/{job.id}").text
        dogs = client.get(f"/v1/jobs/{job.id}/scores?label=dog").json()

    assert "blurred 2" in summary
    assert [row["sample_id"] for row in dogs["samples"]] == ["dog/0.png", "dog/1.png"]


def test_a_decision_about_a_tag_has_the_picture_of_its_image(scores: Path) -> None:
    ids = ["cat/0.png#red", "dog/1.png#a#b"]
    content = read_scores(scores)
    columns = {"rmd": [2.0, 1.0], "nearest_label": [1, 1], "label_margin": [1.0, -1.0]}
    table = score_table([0, 1], ids=ids, percentile=[1.0, 0.0], **columns)
    tags = {"table": "tags.csv", "names": ["red", "a#b"]}
    provenance = content.provenance.updated(Provenance.of({"tags": tags}))
    write_scores(scores, table, provenance)
    client, job = opened(scores)

    with client:
        answers = [client.get(f"/jobs/{job.id}/images/{row}/picture") for row in range(2)]

    widths = [Image.open(io.BytesIO(answer.content)).size[0] for answer in answers]
    assert widths == [20, 21]
    assert "difficulty tags" in why_not_again(provenance, None)


def test_marks_are_there_when_the_file_is_opened_again(scores: Path) -> None:
    client, job = opened(scores)
    change = {"marks": [{"sample_id": "dog/0.png", "decision": {"mark": "drop"}}]}
    with client:
        client.post(f"/v1/jobs/{job.id}/marks", json=change).raise_for_status()

    again, same = opened(scores)
    with again:
        marks = again.get(f"/v1/jobs/{same.id}/marks").json()["marks"]

    assert [mark["sample_id"] for mark in marks] == ["dog/0.png"]


def test_a_picture_that_is_gone_is_replaced_by_the_reason(scores: Path) -> None:
    client, job = opened(scores)
    (scores.parent / "photos").rename(scores.parent / "moved")

    with client:
        answer = client.get(f"/jobs/{job.id}/images/2/picture")

    assert answer.status_code == 410
    assert answer.headers["content-type"] == "image/svg+xml"
    assert "the dataset can no" in answer.text


@pytest.mark.slow
def test_a_large_picture_is_shown_small_and_in_its_own_size(scores: Path) -> None:
    (scores.parent / "photos" / "dog" / "0.png").write_bytes(png_of("blue", (700, 30)))
    client, job = opened(scores)

    with client:
        address = f"/jobs/{job.id}/images/2"
        answers = [client.get(f"{address}/{part}") for part in ("picture?size=512", "whole")]

    sizes = [Image.open(io.BytesIO(answer.content)).size for answer in answers]
    assert sizes == [(512, 22), (700, 30)]


def test_jobs_are_shown_but_not_taken(scores: Path) -> None:
    client, _ = opened(scores)
    body = {"dataset": {"root": scores.parent.name, "path": "photos"}}

    with client:
        page = client.get("/").text
        answer = client.post("/v1/jobs", json=body)

    assert "Look at the images" in page
    assert "Score a dataset" not in page
    assert answer.status_code == 403


def with_a_bad_image(scores: Path) -> ScoreFile:
    """The scores with a note that one image could not be read."""
    content = read_scores(scores)
    write_scores(
        scores, content.table, Provenance.of({**content.provenance.to_json(), "num_bad_images": 1})
    )
    return read_scores(scores)


@pytest.mark.parametrize("folder", ["scores.features", "."])
def test_images_without_a_score_are_listed_with_the_reasons(scores: Path, folder: str) -> None:
    place = scores.parent / folder
    place.mkdir(exist_ok=True)
    reason = "9 x 1 pixels are more than the 8 allowed; raise max_pixels if genuine"
    write_errors(place, [BadImage("dog/damaged.png", reason)])
    errors = find_errors(scores, with_a_bad_image(scores))

    client, job = opened(scores, errors)
    with client:
        page = client.get(f"/jobs/{job.id}/errors").text

    assert "dog/damaged.png" in page
    assert "8 allowed; raise --max-pixels if" in page
    assert "1 file was skipped." in page


def test_without_a_list_of_errors_the_page_says_where_it_is_written(scores: Path) -> None:
    errors = find_errors(scores, with_a_bad_image(scores))

    client, job = opened(scores, errors)
    with client:
        page = client.get(f"/jobs/{job.id}/errors").text

    assert "1 unreadable image<" in page
    assert str(scores.with_suffix(".features") / "errors.parquet") in page


def test_errors_of_another_dataset_are_not_shown(scores: Path) -> None:
    write_errors(scores.parent, [BadImage("dog/0.png", "it has a score here")])

    (error,) = find_errors(scores, with_a_bad_image(scores))

    assert error.sample_id == "1 unreadable image"


def test_a_damaged_list_of_errors_is_named(scores: Path) -> None:
    (scores.parent / "errors.parquet").write_text("no Parquet")

    (error,) = find_errors(scores, with_a_bad_image(scores))

    assert "errors.parquet is damaged" in error.reason


def test_a_file_without_bad_images_has_no_errors(scores: Path) -> None:
    assert not find_errors(scores, read_scores(scores))


def test_a_folder_that_cannot_be_made_is_explained(scores: Path) -> None:
    scores.with_suffix(".explorer").write_text("in the way")

    with pytest.raises(ConfigError, match="where marks are kept"):
        explore(ExploreOptions(scores), 0, print, print)


def test_the_server_answers_this_machine_only(scores: Path) -> None:
    settings = explorer_settings(scores, "photos", 0)

    assert settings.host == "127.0.0.1"
    assert settings.data_dir == scores.with_suffix(".explorer")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/photos", (("data", "/data"), "photos")),
        ("s3://bucket/photos", (("dataset", "s3://bucket/photos"), "")),
    ],
)
def test_a_dataset_lies_below_a_root(location: str, expected: tuple[tuple[str, str], str]) -> None:
    assert root_and_path(location) == expected


def test_a_name_of_another_site_that_leads_here_is_not_answered(scores: Path) -> None:
    client, job = opened(scores)
    with client:
        own = client.get(f"/jobs/{job.id}")
        other = client.get(f"/jobs/{job.id}", headers={"host": "rebound.example:80"})

    assert own.status_code == 200
    assert other.status_code == 400
    assert job.id not in other.text


def keep_features(scores: Path, folder: Path, ids: list[str]) -> None:
    """Features of the images in a folder as `difficulty score` keeps them: cats unlike dogs."""
    labels = torch.tensor([each.startswith("dog") for each in ids]).long()
    noise = torch.randn(len(ids), 3, generator=torch.Generator().manual_seed(0))
    dataset = str(scores.parent / "photos")
    store_of(folder, noise + 9 * labels[:, None], labels, ids, dataset=dataset)


def open_with_features(scores: Path, folder: Path) -> tuple[TestClient, Job]:
    client, job = opened(scores)
    settings = explorer_settings(scores, str(scores.parent / "photos"), 0)
    add_features(settings.artifact_root, job, folder)
    return client, job


def test_other_features_make_another_tsne(scores: Path) -> None:
    ids = ["dog/1.png", "cat/0.png", "dog/0.png", "cat/1.png"]
    first, second = scores.with_suffix(".features"), scores.with_name("others")
    for folder in (first, second):
        keep_features(scores, folder, ids)
    client, job = open_with_features(scores, first)
    artifacts = open_artifacts(explorer_settings(scores, "", 0).artifact_root)
    key = f"{attempt_prefix(job)}/{TSNE_FILE}"
    artifacts.put(scores, key)

    with client:
        open_with_features(scores, first)
        kept = artifacts.size(key)
        open_with_features(scores, second)

    assert kept
    assert artifacts.size(key) is None


@pytest.mark.slow
def test_features_beside_the_scores_show_similar_images(scores: Path) -> None:
    folder = scores.with_suffix(".features")
    # In another order than the score file, and with an image that it does not have.
    order = ["dog/1.png", "cat/0.png", "dog/9.png", "dog/0.png", "cat/1.png"]
    keep_features(scores, folder, order)
    client, job = open_with_features(scores, folder)

    with client:
        page = client.get(f"/jobs/{job.id}/images/0").text

    strip = page.partition('id="similar"')[2].partition("</ul>")[0]
    assert re.findall(r"/images/(\d)/picture", strip)[0] == "1"
    assert sorted(re.findall(r"/images/(\d)/picture", strip)) == ["1", "2", "3"]


def keep_features_of_clip(scores: Path) -> None:
    """Features such as a CLIP has, beside the scores."""
    ids = ["dog/1.png", "cat/0.png", "dog/0.png", "cat/1.png"]
    kind = {"backbone": "clip-vit-b32", "features": "projected", "weights_sha256": "0" * 64}
    labels = torch.tensor([1, 0, 1, 0])
    store_of(scores.with_suffix(".features"), torch.randn(4, 3), labels, ids, **kind)


@pytest.mark.slow
def test_images_are_found_by_words_with_the_weights_that_are_named(
    scores: Path, tmp_path: Path
) -> None:
    keep_features_of_clip(scores)
    save_file({"proj": torch.zeros(2, 2)}, tmp_path / "tower.safetensors")
    _, job = open_with_features(scores, scores.with_suffix(".features"))
    settings = explorer_settings(scores, str(scores.parent / "photos"), 0)
    explored = ExploredFile(scores, "", settings, weights=tmp_path / "tower.safetensors")
    rounds = Rounds(explored, job.id, "no features")

    with TestClient(create_app(settings, rounds), base_url="http://localhost") as client:
        page = client.get(f"/jobs/{job.id}/images").text
        searched = client.get(f"/jobs/{job.id}/images?text=snow").text

    assert '<label for="text">' in page
    assert f"{tmp_path}/tower.safetensors holds no text encoder; give a file" in searched
    assert "as --weights" in searched


@pytest.mark.slow
def test_features_of_another_network_take_the_search_by_words_away(
    scores: Path, tmp_path: Path
) -> None:
    keep_features_of_clip(scores)
    open_with_features(scores, scores.with_suffix(".features"))
    keep_features(scores, tmp_path / "others", ["cat/0.png", "dog/0.png"])

    client, job = open_with_features(scores, tmp_path / "others")

    with client:
        assert 'name="text"' not in client.get(f"/jobs/{job.id}/images").text


def test_weights_that_no_search_would_read_are_refused(scores: Path, tmp_path: Path) -> None:
    (tmp_path / "clip.safetensors").touch()

    for name, reason in (("none", "there is no file"), ("clip", "no features that share a space")):
        options = ExploreOptions(scores, weights=tmp_path / f"{name}.safetensors")
        with pytest.raises(ConfigError, match=reason):
            explore(options, 0, print, print)


def test_without_features_the_page_names_the_command_that_makes_them(scores: Path) -> None:
    client, job = opened(scores)

    with client:
        page = client.get(f"/jobs/{job.id}/images/0").text
        drawn = client.get(f"/jobs/{job.id}/map").text

    for text in (page, drawn):
        assert "<code>difficulty score DATASET --out scores.parquet</code>" in text
        assert "--features FOLDER" in text


@pytest.mark.slow
def test_other_features_replace_those_of_an_earlier_time(scores: Path, tmp_path: Path) -> None:
    ids = ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    keep_features(scores, tmp_path / "first", ids)
    keep_features(scores, tmp_path / "second", [ids[0], *ids[2:]])
    client, job = open_with_features(scores, tmp_path / "first")
    with client:
        before = client.get(f"/jobs/{job.id}/images/0").text

    client, job = open_with_features(scores, tmp_path / "second")
    with client:
        after = client.get(f"/jobs/{job.id}/images/0").text
        without = client.get(f"/jobs/{job.id}/images/1").text

    assert [text.count("loading=") for text in (before, after)] == [3 + 2, 2 + 2]
    assert "There are no features of this image" in without


@pytest.mark.parametrize(
    ("ids", "reason"), [(None, "holds no features"), (["a.png", "b.png"], "none of the images")]
)
def test_features_that_do_not_fit_are_refused(
    scores: Path, tmp_path: Path, ids: list[str] | None, reason: str
) -> None:
    if ids is not None:
        keep_features(scores, tmp_path / "features", ids)

    with pytest.raises(ConfigError, match=reason):
        explore(ExploreOptions(scores, features=tmp_path / "features"), 0, print, print)
