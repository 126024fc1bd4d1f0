"""Images are found by words where the network that made their features knows words."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from api.jobs.store import Job, get_job
from api.online.process import ScoringProcess
from api.online.word_encoder import WordEncoder
from api.results import conditions
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, image_preprocessing
from difficulty_service.backbones.clip_text import load_text_encoder
from difficulty_service.base.errors import BackboneError, Setting
from difficulty_service.images.preparation import normalise, prepare
from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of, finished_job
from tests.small_clip import BACKBONE, hub_file, known_to_open_clip, make_scorer, write_weights
from tests.small_network import SMALL

CLASSES = ("bird", "cat", "dog")
WORDS = "a dog in snow"
ROUNDING = 2e-3
"""Of a cosine of vectors in float16."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with images, and the weights of a small CLIP in the hub's cache."""
    folder = tmp_path_factory.mktemp("words")
    write_image_folder(folder / "photos", CLASSES, 10, size=(32, 32))
    with known_to_open_clip(folder), pytest.MonkeyPatch.context() as patch:
        write_weights(hub_file(folder / "hub"))
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        patch.setattr("api.online.process._make_scorer", partial(make_scorer, folder))
        yield folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[ServiceClient]:
    roots = {"photos": str(folder / "photos")}
    with client_of(
        folder / "data", roots=roots, default_backbone=SMALL, more_backbones=[BACKBONE]
    ) as client:
        yield client


@pytest.fixture(scope="module")
def job(client: ServiceClient) -> Job:
    """A job with pooled features, as all of a service are."""
    return finished_job(client, backbone=BACKBONE)


@pytest.fixture(scope="module")
def closeness(folder: Path) -> NDArray[np.float32]:
    """Cosine of each image to the words, by the network itself."""
    options = BackboneOptions(features="projected")
    tower = load_backbone(BACKBONE, options)
    preprocessing = image_preprocessing(tower)
    paths = sorted((folder / "photos").glob("*/*.png"))
    views = torch.stack(
        [prepare(partial(path.open, "rb"), preprocessing, "fast") for path in paths]
    )
    images = tower.encode(normalise(views, preprocessing, torch.float32))
    words = load_text_encoder(BACKBONE, options).encode([WORDS])
    return (F.normalize(images, dim=1) @ words.T)[:, 0].numpy()


@pytest.fixture
def finished(client: ServiceClient, job: Job) -> Job:
    """The job with its result."""
    found = get_job(client.engine, None, job.id)
    assert found is not None
    return found


@pytest.fixture
def encoder(client: ServiceClient) -> WordEncoder:
    """What encodes words, in this process."""
    services = client.services
    return WordEncoder(services.settings, services.artifacts)


def rows_of(page: str) -> list[int]:
    return [int(row) for row in re.findall(r'id="image-(\d+)"', page)]


def are_descending(values: NDArray[np.float32]) -> bool:
    return bool((np.diff(values) < ROUNDING).all())


@pytest.mark.slow
def test_images_are_in_the_order_of_their_cosine_to_the_words(
    client: ServiceClient, job: Job, closeness: NDArray[np.float32]
) -> None:
    page = client.get(f"/jobs/{job.id}/images?text={quote(WORDS)}").raise_for_status().text

    rows = rows_of(page)
    assert sorted(rows) == list(range(30))
    assert np.ptp(closeness) > 20 * ROUNDING
    assert are_descending(closeness[rows])
    assert f"closest to “<bdi>{WORDS}</bdi>”" in page


def test_the_closest_of_those_that_fulfil_the_other_conditions_are_listed_and_marked(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/jobs/{job.id}/images?text={quote(WORDS)}"
    every = rows_of(client.get(address).text)
    monkeypatch.setattr(conditions, "MOST_ALIKE", 4)
    cats = [row for row in every if 10 <= row < 20][:4]

    assert rows_of(client.get(address).text) == every[:4]
    assert rows_of(client.get(f"{address}&label=cat").text) == cats
    assert rows_of(client.get(f"{address}&label=cat&sort=file").text) == sorted(cats)

    following = client.get(f"/jobs/{job.id}/images/{cats[1]}?text={quote(WORDS)}&label=cat").text
    assert f'id="next" rel="next" href="/jobs/{job.id}/images/{cats[2]}?' in following

    marking = f"/jobs/{job.id}/images/mark-matching?text={quote(WORDS)}&label=cat"
    client.post(marking, data={"mark": "drop"})
    marks = client.get(f"/v1/jobs/{job.id}/marks").json()["marks"]
    assert {each["row"] for each in marks} == set(cats)


def test_scores_are_listed_in_the_order_of_the_words_page_by_page(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = rows_of(client.get(f"/jobs/{job.id}/images?text=red").text)
    monkeypatch.setattr(conditions, "MOST_ALIKE", 7)
    query = {"text": "red", "sort": "alike", "limit": "4"}

    first = client.get(f"/v1/jobs/{job.id}/scores", params=query).json()
    query["after"] = first["next"]
    second = client.get(f"/v1/jobs/{job.id}/scores", params=query).json()

    listed = [each["sample_id"] for each in (*first["samples"], *second["samples"])]
    names = [f"{name}/{number}.png" for name in CLASSES for number in range(10)]
    assert listed == [names[row] for row in every[:7]]
    assert (first["matching"], second["next"]) == (7, None)


def test_words_are_encoded_once_for_all_pages_of_a_list(
    client: ServiceClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []
    encode = ScoringProcess.encode_words

    def count(process: ScoringProcess, job: Job, text: str, weights: str | None) -> object:
        encoded.append(text)
        return encode(process, job, text, weights)

    monkeypatch.setattr(ScoringProcess, "encode_words", count)
    for address in ("images?text=a+cat", "images?text=+a+cat+&label=dog", "images/3?text=a+cat"):
        client.get(f"/jobs/{job.id}/{address}").raise_for_status()

    assert encoded == ["a cat"]


def test_a_page_has_the_field_where_the_network_knows_words(
    client: ServiceClient, job: Job
) -> None:
    page = client.get(f"/jobs/{job.id}/images?text=snow&sort=").text

    assert '<label for="text">' in page
    assert '<input id="text" type="search" name="text" value="snow"' in page
    assert '<option value="" selected>Closest to the words' in page


def test_words_and_a_similar_image_exclude_each_other(client: ServiceClient, job: Job) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores?text=snow&like=3")

    assert answer.status_code == 422
    assert "not both" in answer.json()["detail"]


def test_an_order_by_similarity_needs_something_to_compare_with(
    client: ServiceClient, job: Job
) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores?sort=alike")

    assert answer.status_code == 422


def test_a_text_that_is_longer_than_the_network_reads_is_refused(
    client: ServiceClient, job: Job
) -> None:
    answer = client.get(f"/v1/jobs/{job.id}/scores", params={"text": "snow " * 100})

    assert answer.status_code == 422
    assert answer.json()["detail"] == f"the text is longer than what {BACKBONE} reads"
    assert answer.json()["remedy"] == "use fewer words"


def test_a_damaged_file_of_vectors_is_made_again(
    client: ServiceClient, finished: Job, encoder: WordEncoder
) -> None:
    vector, path = encoder.encode(finished, WORDS, None)
    content = path.read_bytes()
    path.write_bytes(content[:-200])

    services = client.services
    again, made = WordEncoder(services.settings, services.artifacts).encode(finished, WORDS, None)

    assert made.read_bytes() == content
    assert (again == vector).all()


def test_other_weights_than_those_of_the_features_are_refused(
    tmp_path: Path, finished: Job, encoder: WordEncoder
) -> None:
    weights = write_weights(tmp_path / "clip.safetensors", seed=1)

    with pytest.raises(BackboneError, match="are not those that made the features; score the"):
        encoder.encode(finished, WORDS, str(weights))


def test_missing_weights_are_explained_without_the_folders_of_the_server(
    client: ServiceClient, finished: Job, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        path = folder / "hub" / "clip.safetensors"
        raise BackboneError(f"there is no file {path}", "set ", Setting("weights"))

    monkeypatch.setattr(ScoringProcess, "encode_words", fail)
    answer = client.get(f"/v1/jobs/{finished.id}/scores?text=fog").json()

    assert answer["detail"] == "there is no file clip.safetensors"
    assert answer["remedy"].startswith("ask the operator of the service for the weights")
