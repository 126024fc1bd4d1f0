"""Downloads of weights by the real client of the hub, from a hub on this machine."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from difficulty_service.backbones.downloads import (
    ABANDONED_SECONDS,
    DownloadProgress,
    Downloads,
)
from difficulty_service.backbones.transformers_text import find_folder
from difficulty_service.backbones.weights_files import locate_weights
from difficulty_service.base.errors import MissingWeights, WeightsTooLarge
from tests.hub import Hub, serving, use_hub

SIZE = 10_000
CONTENT = bytes(number % 251 for number in range(SIZE))
NAMES = ("model.safetensors",)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one file, which answers without stopping."""
    with serving(Hub({"owner/name/model.safetensors": CONTENT})) as hub:
        hub.gate.set()
        use_hub(hub, tmp_path, monkeypatch)
        # Whoever runs the tests may have turned Xet off.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
        yield hub


def fetch(downloads: Downloads) -> Path:
    return locate_weights(None, "network", "owner/name", NAMES, downloads)


def left_in(folder: Path) -> list[str]:
    """Names of the files in a cache that look like weights or parts of some."""
    return [path.name for path in folder.rglob("*") if path.is_file() and "blobs" in path.parts]


def test_the_progress_of_a_download_is_reported_up_to_its_end(hub: Hub) -> None:
    told: list[DownloadProgress | None] = []

    path = fetch(Downloads(SIZE, told.append))

    assert path.read_bytes() == CONTENT
    *parts, end = told
    assert parts == [DownloadProgress(done, SIZE) for done in range(1000, SIZE + 1, 1000)]
    assert end is None
    assert len(hub.downloads) == 1


def test_weights_that_are_larger_than_the_limit_are_refused_before_a_byte_is_asked_for(
    hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(WeightsTooLarge, match=r"10,000 bytes or more, and 9,999 may"):
        fetch(Downloads(SIZE - 1))

    assert hub.downloads == []
    assert left_in(tmp_path) == []


def test_weights_that_are_larger_than_what_the_hub_announced_end_at_the_limit(
    hub: Hub, tmp_path: Path
) -> None:
    hub.announced = 10
    told: list[DownloadProgress | None] = []

    with pytest.raises(WeightsTooLarge):
        fetch(Downloads(5000, told.append))

    assert [each.done for each in told if each] == [1000, 2000, 3000, 4000, 5000]
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    "downloads", [Downloads(SIZE), Downloads(report=lambda _: None)], ids=["limit", "report"]
)
def test_what_can_end_a_download_has_it_come_by_http_also_where_xet_is_offered(
    hub: Hub, downloads: Downloads
) -> None:
    hub.has_xet = True

    path = fetch(downloads)

    assert path.read_bytes() == CONTENT
    assert constants.HF_HUB_DISABLE_XET is False


def test_any_other_download_may_come_by_xet(hub: Hub) -> None:
    pytest.importorskip("hf_xet")
    hub.has_xet = True

    with pytest.raises(MissingWeights, match="cannot be downloaded"):  # as this hub has no Xet
        fetch(Downloads())

    assert hub.downloads == []


@pytest.mark.slow
def test_a_download_that_breaks_off_is_resumed(hub: Hub) -> None:
    hub.breaks = 1

    path = fetch(Downloads())

    assert path.read_bytes() == CONTENT
    assert len(hub.downloads) == 2


def test_a_file_of_another_size_than_announced_is_not_taken_for_whole_and_is_tried_anew(
    hub: Hub, tmp_path: Path
) -> None:
    hub.announced = SIZE + 1
    with pytest.raises(MissingWeights, match="cannot be downloaded") as failed:
        fetch(Downloads())
    left = left_in(tmp_path)

    hub.announced = None
    path = fetch(Downloads())

    assert isinstance(failed.value.__cause__, OSError)  # by which a job is tried again
    assert left == []
    assert path.read_bytes() == CONTENT


def test_a_file_with_other_content_than_announced_is_deleted(hub: Hub, tmp_path: Path) -> None:
    hub.digest = "0" * 64

    with pytest.raises(MissingWeights, match="not the file of the hub"):
        fetch(Downloads())

    assert left_in(tmp_path) == []
    assert hub.downloads


def test_a_second_download_waits_for_the_first_and_finds_its_weights(hub: Hub) -> None:
    hub.gate.clear()
    found: list[Path] = []
    waiting = threading.Event()
    first = threading.Thread(target=lambda: found.append(fetch(Downloads())))
    first.start()
    while not hub.downloads:
        assert first.is_alive()

    def open_gate(progress: DownloadProgress | None) -> None:
        if progress == DownloadProgress():
            waiting.set()
            hub.gate.set()

    found.append(fetch(Downloads(report=open_gate)))
    first.join()

    assert waiting.is_set()
    assert found[0] == found[1]
    assert len(hub.downloads) == 1


def test_whoever_is_told_of_the_progress_can_end_the_download(hub: Hub, tmp_path: Path) -> None:
    def stop(_progress: DownloadProgress | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(Downloads(report=stop))

    assert hub.downloads
    assert left_in(tmp_path) == []
    assert fetch(Downloads()).read_bytes() == CONTENT


def test_what_a_killed_process_left_is_deleted_by_a_later_download(
    hub: Hub, tmp_path: Path
) -> None:
    whole = fetch(Downloads())
    blobs = whole.resolve().parent
    old, young = blobs / "a.12345678.incomplete", blobs / "b.12345678.incomplete"
    for part in (old, young):
        part.write_bytes(CONTENT)
    an_hour_ago = time.time() - ABANDONED_SECONDS - 1
    os.utime(old, (an_hour_ago, an_hour_ago))
    os.utime(whole.resolve(), (an_hour_ago, an_hour_ago))
    hub.files["owner/other/model.safetensors"] = CONTENT

    locate_weights(None, "network", "owner/other", NAMES, Downloads())

    assert whole.read_bytes() == CONTENT
    assert sorted(each for each in left_in(tmp_path) if "incomplete" in each) == [young.name]


def test_the_files_of_an_encoder_of_texts_count_together_and_its_weights_come_last(
    hub: Hub,
) -> None:
    hub.files |= {"owner/words/model.safetensors": CONTENT, "owner/words/tokenizer.json": b"{ }"}
    hub.files |= {"owner/words/config.json": b"{}", "owner/words/README.md": b"no weights"}
    told: list[DownloadProgress | None] = []

    with pytest.raises(WeightsTooLarge, match="10,005 bytes"):
        find_folder("words", "owner/words", Downloads(SIZE))
    folder = find_folder("words", "owner/words", Downloads(SIZE + 5, told.append))

    assert [path.rpartition("/")[2] for path in hub.downloads] == [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
    ]
    assert told[-2:] == [DownloadProgress(SIZE + 5, SIZE + 5), None]
    assert (folder / "model.safetensors").read_bytes() == CONTENT
