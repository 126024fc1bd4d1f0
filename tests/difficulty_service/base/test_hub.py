"""The real client of the hub with one that answers, one that is slow, and none."""

import socket
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import constants, hf_hub_download

from difficulty_service.base import hub as base_hub
from difficulty_service.base.hub import asking_hub
from tests.hub import Hub, serving, use_hub


def download() -> bytes:
    return Path(hf_hub_download("owner/name", "model.safetensors")).read_bytes()


def test_without_a_network_the_hub_is_looked_for_once(
    lookups: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(ConnectionError, match=r"cannot be reached: .*not known"), asking_hub():
        download()

    assert len(lookups) == 1
    assert constants.HF_HUB_OFFLINE is False


def test_offline_the_hub_is_not_even_looked_for(
    lookups: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(OSError, match="in the local cache"), asking_hub():
        download()

    assert lookups == []
    assert constants.HF_HUB_OFFLINE is True


def test_what_is_cached_is_there_without_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Hub({"owner/name/model.safetensors": b"weights"})) as hub:
        hub.gate.set()
        use_hub(hub, tmp_path, monkeypatch)
        with asking_hub():
            downloaded = download()

    with asking_hub():  # it no longer listens
        cached = download()

    assert (downloaded, cached) == (b"weights", b"weights")
    assert len(hub.downloads) == 1


def test_a_hub_that_takes_long_to_answer_is_asked_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_hub, "CONNECTION_SECONDS", 0.05)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with asking_hub():
            assert constants.HF_HUB_OFFLINE is False


def test_a_connection_that_breaks_off_is_an_error_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(Hub({})) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        with pytest.raises(ConnectionError, match="peer closed"), asking_hub():
            raise httpx2.RemoteProtocolError("peer closed connection")
