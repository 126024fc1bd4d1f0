"""Datasets for the hub of Hugging Face: opened, and uploaded to a hub on this machine."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard

from difficulty_service.base.errors import CleaningError
from difficulty_service.cleaning.exports import export_folder
from difficulty_service.cleaning.exports.hub import describe, push
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.difficulty_service.cleaning.exports.conftest import World, without_labels

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, world: World) -> Path:
    """The exported dataset."""
    out = tmp_path_factory.mktemp("hub") / "out"
    export_folder("hub", world.scores, world.images, out)
    return out


def load(folder: Path, tmp_path: Path) -> datasets.Dataset:
    return datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))


def test_datasets_loads_images_names_of_classes_and_scores(
    tmp_path: Path, folder: Path, world: World
) -> None:
    opened = load(folder, tmp_path)

    assert opened["sample_id"][:] == world.ids
    assert opened["rmd"][:] == list(range(12))
    for name in ("label", "nearest_label", "suggested_label"):
        assert opened.features[name].names == ["bird", "cat", "dog"]
    assert opened.features["nearest_label"].int2str(opened[4]["nearest_label"]) == "dog"
    assert opened[4]["image"].size == (32, 24)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "data"]
    assert [path.name for path in (folder / "data").iterdir()] == ["train-00000-of-00001.parquet"]


def test_the_card_has_metadata_of_the_hub_and_describes_every_column(
    folder: Path, world: World
) -> None:
    card = DatasetCard.load(folder / "README.md")

    assert card.data.task_categories == ["image-classification"]
    assert card.data.size_categories == "n<1K"
    (config,) = card.data.to_dict()["configs"]
    assert config["data_files"] == [{"split": "train", "path": "data/train-*"}]
    columns = re.findall(r"^\| `(\w+)` \|", card.text, flags=re.MULTILINE)
    names = [name for name in world.scores.table.column_names if name != "label_name"]
    assert columns == ["image", *names]
    assert "| probably wrong | 1 |" in card.text
    assert "| fits | 11 |" in card.text


@pytest.mark.parametrize(
    ("number", "category"), [(999, "n<1K"), (1_000, "1K<n<10K"), (100_000_000, "100M<n<1B")]
)
def test_the_card_has_the_size_as_the_hub_divides_it(
    world: World, number: int, category: str
) -> None:
    card = DatasetCard(describe(world.scores, ["image"], number, "image"))

    assert card.data.size_categories == category


def test_the_card_names_no_folder_of_this_machine(tmp_path: Path, world: World) -> None:
    known = {
        **world.scores.provenance.to_json(),
        "fitted_on": {"dataset": "/home/me/train", "fingerprint": "f", "num_samples": 5},
        "predictions": {"run": "/home/me/run", "recipe": "r", "seeds": {}, "columns": {}},
    }
    scores = ScoreFile(world.scores.table, Provenance.of(known))

    export_folder("hub", scores, world.images, tmp_path / "out")

    text = (tmp_path / "out" / "README.md").read_text()
    assert "| Dataset | photos |" in text
    assert "| Fitted on | train, 5 images |" in text
    assert "/home" not in text
    assert str(tmp_path.parent) not in text


def test_images_without_labels_become_a_dataset_without_classes(
    tmp_path: Path, world: World
) -> None:
    export_folder("hub", without_labels(world.scores), world.images, tmp_path / "out")

    card = DatasetCard.load(tmp_path / "out" / "README.md")
    assert load(tmp_path / "out", tmp_path).column_names == [
        *("image", "sample_id", "md_agnostic", "percentile"),
    ]
    assert card.data.task_categories is None
    assert "## Labels" not in card.text


def test_large_datasets_have_several_files(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("difficulty_service.cleaning.exports.hub.BYTES_OF_A_FILE", 10_000)

    export_folder("hub", world.scores, world.images, tmp_path / "out")

    assert len(list((tmp_path / "out" / "data").iterdir())) > 1
    assert load(tmp_path / "out", tmp_path)["sample_id"][:] == world.ids


class Hub(HTTPServer):
    """The part of the hub's API that an upload of small files uses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.requests: dict[str, bytes] = {}
        self.status = 200


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self._answer({"sha": "0" * 40})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.server.requests[path] = body
        if path.endswith("/preupload/main"):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif path.endswith("/commit/main"):
            address = f"https://huggingface.co/datasets/me/photos/commit/{'1' * 40}"
            self._answer({"commitUrl": address, "commitOid": "1" * 40})
        else:
            self._answer({"url": f"http://{self.headers['Host']}/datasets/me/photos"})

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
        yield server
        server.shutdown()
        thread.join()


def test_a_folder_is_uploaded_to_a_new_private_dataset(folder: Path, hub: Hub) -> None:
    address = push(folder, "me/photos")

    assert address == f"http://127.0.0.1:{hub.server_port}/datasets/me/photos"
    created = json.loads(hub.requests["/api/repos/create"])
    assert (created["name"], created["organization"]) == ("photos", "me")
    assert created.get("private") or created.get("visibility") == "private"
    lines = map(json.loads, hub.requests["/api/datasets/me/photos/commit/main"].splitlines())
    files = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"])
        for line in lines
        if line["key"] == "file"
    }
    assert files == {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_refused_upload_says_how_to_go_on(folder: Path, hub: Hub) -> None:
    hub.status = 401

    with pytest.raises(CleaningError) as refused:
        push(folder, "me/photos")

    told = str(refused.value)
    assert f"the folder {folder} is written, but cannot be uploaded as me/photos" in told
    assert f"hf upload me/photos {folder} --repo-type dataset" in told


@pytest.mark.usefixtures("hub")
def test_a_name_that_is_none_of_the_hub_is_refused(folder: Path) -> None:
    with pytest.raises(CleaningError, match="cannot be uploaded as a/b/c"):
        push(folder, "a/b/c")
