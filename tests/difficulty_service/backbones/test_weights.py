"""Weights files are read safely, and errors describe weights that do not fit."""

import os
import pickle
import socket
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from difficulty_service.backbones.weights import (
    describe_difference,
    load_checked,
    read_weights,
)
from difficulty_service.backbones.weights_files import locate_weights
from difficulty_service.base.errors import BackboneError, MissingWeights
from difficulty_service.base.files import file_sha256
from tests.factories import write_hub_file

TENSORS = {"layer.weight": torch.arange(6.0).view(2, 3), "layer.bias": torch.ones(2)}


def test_a_safetensors_file_is_read_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.dat"
    save_file(TENSORS, path)

    torch.testing.assert_close(read_weights(path), TENSORS)


def test_a_safetensors_file_that_begins_like_a_pickle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    for length in range(300):
        save_file(TENSORS, path, metadata={"note": "x" * length})
        if path.read_bytes().startswith(b"\x80"):
            break
    else:
        pytest.fail("no length of the header begins with that byte")

    torch.testing.assert_close(read_weights(path), TENSORS)


@pytest.mark.parametrize("nested_under", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_pytorch_file_is_read_even_if_it_is_a_training_checkpoint(
    tmp_path: Path, nested_under: str | None, prefix: str
) -> None:
    path = tmp_path / "weights.safetensors"
    tensors: dict[str, object] = {f"{prefix}{name}": value for name, value in TENSORS.items()}
    torch.save({nested_under: tensors, "epoch": 3} if nested_under else tensors, path)

    torch.testing.assert_close(read_weights(path), TENSORS)


class Payload:
    """An object whose unpickling creates a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_file_that_contains_code_is_refused_without_running_it(
    tmp_path: Path, writer: str
) -> None:
    path, trace = tmp_path / "weights.pt", tmp_path / "trace"
    content = {**TENSORS, "extra": Payload(trace)}
    if writer == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))

    with pytest.raises(BackboneError, match="running code from it, which is refused"):
        read_weights(path)

    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"not weights at all", b"PK\x03\x04 no archive", b"\x80"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)

    with pytest.raises(BackboneError, match=r"weights\.safetensors") as caught:
        read_weights(path)

    assert "\n" not in str(caught.value)


def test_a_truncated_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(TENSORS, path)
    path.write_bytes(path.read_bytes()[:-4])

    with pytest.raises(BackboneError, match="neither a safetensors file nor"):
        read_weights(path)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"epoch": 3}, path)

    with pytest.raises(BackboneError, match="holds no tensors"):
        read_weights(path)


def test_the_difference_counts_and_names_the_tensors_that_do_not_fit() -> None:
    expected = {f"block{i}.weight": torch.zeros(4, 2) for i in range(8)}
    weights = {"block0.weight": torch.zeros(4, 3), "head.bias": torch.tensor(1.0)}

    difference = describe_difference(expected, weights)

    missing, unexpected, reshaped = difference.splitlines()
    assert missing.strip().startswith("7 missing (of 8): block1.weight 4x2, block2.weight 4x2, ")
    assert missing.endswith("block5.weight 4x2, ...")
    assert unexpected.strip() == "1 unexpected (of 8): head.bias scalar"
    assert reshaped.strip() == "1 of another shape (of 8): block0.weight 4x3 instead of 4x2"


def test_weights_that_fit_are_loaded_in_the_dtype_of_the_network() -> None:
    network = nn.Linear(3, 2)
    weights = {name.removeprefix("layer."): value.half() for name, value in TENSORS.items()}

    load_checked(network, weights, "a file")

    assert network.weight.dtype == torch.float32
    assert torch.equal(network.weight, TENSORS["layer.weight"])


def test_weights_that_do_not_fit_raise_an_error_with_the_difference() -> None:
    with pytest.raises(BackboneError, match=r"a file: (?s:.*)bias 2 instead of 4"):
        load_checked(nn.Linear(3, 4), {"weight": torch.ones(4, 3), "bias": torch.ones(2)}, "a file")


def test_the_digest_is_the_sha256_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")

    assert file_sha256(path).startswith("ba7816bf8f01cfea")


def test_a_missing_weights_file_is_named() -> None:
    with pytest.raises(BackboneError, match=r"no file nowhere\.pt; set weights to the"):
        locate_weights("nowhere.pt", "resnet50", "owner/name", ("model.safetensors",))


def test_a_cached_file_is_found_without_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    cached = write_hub_file(tmp_path, "owner/name", "model.safetensors")

    path = locate_weights(None, "resnet50", "owner/name", ("other.bin", "model.safetensors"))

    assert path == cached


@pytest.mark.parametrize("offline", [False, True])
def test_without_cache_and_network_the_error_names_the_files_the_folder_and_both_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, offline: bool
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    attempts: list[object] = []
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *args, **_: attempts.append(args) or no_network()
    )

    with pytest.raises(BackboneError) as caught:
        locate_weights(None, "resnet50", "owner/name", ("model.safetensors", "model.bin"))

    message = str(caught.value)
    assert "resnet50" in message
    assert "model.safetensors or model.bin of repository owner/name" in message
    assert str(tmp_path) in message
    assert "where there is a network" in message
    assert "give a file of these weights as weights" in message
    assert len(attempts) < 3  # The hub's own client retries for half a minute.


def test_offline_the_hubs_client_is_not_even_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setitem(sys.modules, "httpx2", None)  # an import of it fails

    with pytest.raises(MissingWeights, match="HF_HUB_OFFLINE is set"):
        locate_weights(None, "resnet50", "owner/name", ("model.safetensors",))


def no_network(*_: object, **__: object) -> None:
    raise socket.gaierror(-2, "Name or service not known")
