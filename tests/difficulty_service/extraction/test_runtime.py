"""Convolutional networks of timm by ONNX Runtime: when, with which features, kept how."""

import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from filelock import FileLock
from safetensors.torch import save_file
from torch import Tensor, nn

import difficulty_service as ds
from difficulty_service.backbones import exported_graph, load_backbone, onnx_network
from difficulty_service.backbones.backbone import BackboneOptions, Preprocessing
from difficulty_service.backbones.exported_graph import (
    KeptGraph,
    core_rates,
    graph_file,
    read_graph,
    read_record,
    settle_graph,
)
from difficulty_service.backbones.frozen_network import FrozenNetwork, freeze, runtime_of
from difficulty_service.extraction import policy
from difficulty_service.extraction.engines.shard_extractor import ShardExtractor
from difficulty_service.extraction.policy import compare_precisions, settle_runtime
from difficulty_service.extraction.task import ExtractionTask
from difficulty_service.features.description import read_description
from tests.dataset_files import dataset_of
from tests.factories import write_image_folder

NAME, SIZE = "timm:test_resnet", 64
SLOWER, FASTER = [2.0, 1.0], [1.0, 3.0]
IMAGES = torch.randn(8, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Made:
    """Random weights of a network, and the folder in which its graph was kept as the faster one."""

    options: BackboneOptions
    folder: Path
    name: str

    @property
    def graph(self) -> bytes:
        return (self.folder / self.name).read_bytes()


def saved(folder: Path, seed: int = 0) -> BackboneOptions:
    torch.manual_seed(seed)
    path = folder / f"weights{seed}.safetensors"
    save_file(timm.create_model("test_resnet").state_dict(), path)
    return BackboneOptions(weights=str(path), image_size=SIZE)


def load(options: BackboneOptions) -> FrozenNetwork:
    backbone = load_backbone(NAME, options)
    assert isinstance(backbone, FrozenNetwork)
    return backbone


def settle(backbone: FrozenNetwork) -> KeptGraph:
    assert backbone.graph is not None
    return settle_graph(backbone, backbone.graph, IMAGES)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The one graph that these tests export."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(folder / "assets"))
        patch.setattr(exported_graph, "core_rates", lambda *_: FASTER)
        backbone = load(saved(folder))
        assert backbone.graph is not None
        settle(backbone)
        return Made(saved(folder), backbone.graph.parent, backbone.graph.name)


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the hub's libraries, empty."""
    folder = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_ASSETS_CACHE", str(folder / "assets"))
    return folder


@pytest.fixture
def kept(made: Made, hub: Path) -> Path:
    """The graph in that folder; gives its path."""
    folder = hub / "assets" / "difficulty-service" / "onnx"
    shutil.copytree(made.folder, folder)
    return folder / made.name


@pytest.fixture
def exports(made: Made, monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The networks that are exported, which takes no time; ONNX Runtime is the faster one."""
    exported: list[nn.Module] = []

    def export(network: nn.Module, _images: Tensor) -> bytes:
        exported.append(network)
        return made.graph

    monkeypatch.setattr(exported_graph, "export_graph", export)
    monkeypatch.setattr(exported_graph, "core_rates", lambda *_: FASTER)
    return exported


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image_folder(tmp_path_factory.mktemp("photos"), each=20, size=(70, 80))


def task_of(photos: Path, options: BackboneOptions) -> ExtractionTask:
    return ExtractionTask(dataset_of(photos), NAME, options)


@pytest.mark.parametrize("flip", [False, True])
def test_a_kept_graph_gives_the_features_of_pytorch_for_any_number_of_images(
    made: Made, kept: Path, *, flip: bool
) -> None:
    options = replace(made.options, flip=flip)

    by_graph = load(options)
    kept.unlink()
    by_torch = load(options)

    assert (runtime_of(by_graph), runtime_of(by_torch)) == ("onnxruntime", None)
    assert (by_graph.one_core, by_torch.one_core) == (True, False)
    assert by_graph.weights_sha256 == by_torch.weights_sha256
    expected = by_torch.encode(IMAGES)
    atol = 1e-5 * float(expected.abs().max())
    assert float(expected.std()) > 1000 * atol
    for number in (8, 3, 1):
        features = by_graph.encode(IMAGES[:number])
        torch.testing.assert_close(features, expected[:number], rtol=0, atol=atol)


def test_a_graph_is_of_a_network_its_weights_and_its_size() -> None:
    one = graph_file("resnet18.tv_in1k", 224, "a" * 64)
    others = [
        graph_file("resnet18.a1_in1k", 224, "a" * 64),
        graph_file("resnet18.tv_in1k", 192, "a" * 64),
        graph_file("resnet18.tv_in1k", 224, "b" * 64),
    ]

    assert one == graph_file("resnet18.tv_in1k", 224, "a" * 64)
    assert one.name.startswith("resnet18-224-")
    assert len({one, *others}) == 4


@pytest.mark.usefixtures("kept")
def test_only_convolutions_with_weights_on_a_cpu_in_float32_have_a_graph(made: Made) -> None:
    half = load(replace(made.options, precision=torch.bfloat16))
    random = load(BackboneOptions(image_size=SIZE, random=True))
    transformer = load_backbone("timm:test_vit", BackboneOptions(random=True))

    assert (half.graph, random.graph) == (None, None)
    assert [runtime_of(each) for each in (half, random, transformer)] == [None] * 3


@pytest.mark.usefixtures("kept")
def test_without_onnxruntime_pytorch_runs_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(onnx_network, "find_spec", lambda _name: None)

    backbone = load(made.options)

    assert (backbone.graph, runtime_of(backbone)) == (None, None)


def test_a_slower_graph_is_not_kept_and_not_tried_again(
    made: Made, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported_graph, "core_rates", lambda *_: SLOWER)
    backbone = load(made.options)

    kept = [settle(backbone), settle(backbone)]

    assert [each.graph for each in kept] == [None, None]
    assert kept[0].record == kept[1].record
    assert kept[0].record.speedup == 0.5
    assert len(exports) == 1
    assert backbone.graph is not None
    assert not backbone.graph.exists()
    assert runtime_of(load(made.options)) is None


def test_a_graph_with_other_features_is_refused(tmp_path: Path, exports: list[nn.Module]) -> None:
    backbone = load(saved(tmp_path, seed=1))  # and the graph is that of the first weights

    kept = settle(backbone)

    assert len(exports) == 1
    assert kept.graph is None
    assert str(kept.record.failure).startswith("its features differ by ")
    assert runtime_of(load(saved(tmp_path, seed=1))) is None


class Branching(nn.Module):
    """Does one thing or another by what is in the images, which no graph can say."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))

    def forward(self, images: Tensor) -> Tensor:
        features = self.layers(images).mean((2, 3))
        return features if images.sum() > 0 else -features


def test_a_network_that_cannot_be_exported_says_why_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Preprocessing(SIZE, SIZE, "bicubic", (0.5,) * 3, (0.5,) * 3)
    backbone = freeze("branching", Branching(), plain, None, BackboneOptions())
    path = tmp_path / "branching.onnx"

    kept = settle_graph(backbone, path, IMAGES)

    assert kept.graph is None
    assert "data-dependent" in str(kept.record.failure)
    monkeypatch.setattr(exported_graph, "export_graph", lambda *_: pytest.fail("tried again"))
    assert settle_graph(backbone, path, IMAGES).record == kept.record


@pytest.mark.parametrize("ending", [".onnx", ".json"])
@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"\0" + data[1:]])
def test_a_damaged_file_is_made_anew(
    made: Made,
    kept: Path,
    exports: list[nn.Module],
    ending: str,
    damage: Callable[[bytes], bytes],
) -> None:
    file = kept.with_suffix(ending)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    backbone = load(made.options)
    assert runtime_of(backbone) is None

    settle(backbone)

    assert len(exports) == 1
    assert file.read_bytes() == whole
    assert runtime_of(load(made.options)) == "onnxruntime"


def test_what_is_cut_off_while_it_is_written_does_not_look_whole(
    made: Made, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load(made.options)
    assert backbone.graph is not None

    def cut_off(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", cut_off)
        with pytest.raises(KeyboardInterrupt):
            settle(backbone)

    assert {file.suffix for file in backbone.graph.parent.iterdir()} <= {".lock"}
    settle(backbone)
    assert len(exports) == 2
    assert read_graph(backbone.graph) == KeptGraph(settle(backbone).record, made.graph)


def test_runs_side_by_side_export_a_network_once(made: Made, exports: list[nn.Module]) -> None:
    backbones = [load(made.options) for _ in range(4)]

    with ThreadPoolExecutor(4) as threads:
        kept = list(threads.map(settle, backbones))

    assert len(exports) == 1
    assert [each.graph == made.graph for each in kept] == [True] * 4


def test_each_is_measured_on_one_core(made: Made) -> None:
    threads: list[int] = []

    class Counting(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            threads.append(torch.get_num_threads())
            return images

    backbone = replace(load(made.options), network=Counting())
    before = torch.get_num_threads()

    rates = core_rates([backbone, backbone], IMAGES)

    assert all(rate > 0 for rate in rates)
    assert threads == [1] * 6
    assert torch.get_num_threads() == before


def test_few_images_are_not_worth_an_export(
    made: Made, photos: Path, exports: list[nn.Module]
) -> None:
    task = task_of(photos, made.options)

    settled = settle_runtime(task, load(made.options), policy.LEAST_IMAGES - 1)

    assert (runtime_of(settled.backbone), settled.reason, settled.warnings) == (None, None, ())
    assert exports == []


def test_enough_images_are_and_the_first_batch_is_what_both_encode(
    made: Made, photos: Path, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Tensor] = []

    def rates(_backbones: Sequence[FrozenNetwork], images: Tensor) -> list[float]:
        measured.append(images)
        return FASTER

    monkeypatch.setattr(exported_graph, "core_rates", rates)
    task = task_of(photos, made.options)

    settled = settle_runtime(task, load(made.options), policy.LEAST_IMAGES)

    assert runtime_of(settled.backbone) == "onnxruntime"
    assert settled.reason == "ONNX Runtime, which is 3.0 times as fast as PyTorch here"
    assert len(exports) == 1
    (images,) = measured
    encoder = ds.backbone(NAME, weights=made.options.weights, image_size=SIZE)
    paths = [photos / sample.sample_id for sample in task.dataset.read_shard(0)][: len(images)]
    np.testing.assert_allclose(
        settled.backbone.encode(images), encoder.encode(paths), rtol=0, atol=1e-5
    )


def test_the_slower_library_is_named_with_the_speed(
    made: Made, photos: Path, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported_graph, "core_rates", lambda *_: SLOWER)

    settled = settle_runtime(task_of(photos, made.options), load(made.options), 9999)

    assert runtime_of(settled.backbone) is None
    assert settled.reason == "PyTorch, as ONNX Runtime is 0.5 times as fast here"
    assert len(exports) == 1


def test_without_the_exporter_pytorch_runs_it_and_the_remedy_is_named(
    made: Made, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    backbone = load(made.options)

    settled = settle_runtime(task_of(photos, made.options), backbone, 9999)

    assert settled.backbone is backbone
    assert str(settled.reason).startswith("PyTorch: exporting a network for ONNX Runtime needs ")
    assert str(settled.reason).endswith("pip install 'difficulty-service[cpu]'")
    assert backbone.graph is not None
    assert read_record(backbone.graph) is None


@pytest.mark.usefixtures("exports")
def test_without_a_folder_to_keep_it_in_pytorch_runs_it(
    made: Made, photos: Path, hub: Path
) -> None:
    hub.write_text("a file")

    settled = settle_runtime(task_of(photos, made.options), load(made.options), 9999)

    assert runtime_of(settled.backbone) is None
    assert "its graph cannot be kept" in str(settled.reason)


@pytest.mark.usefixtures("exports")
def test_a_process_that_hangs_in_an_export_does_not_hold_up_others(
    made: Made, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported_graph, "LOCK_SECONDS", 0.01)
    backbone = load(made.options)
    assert backbone.graph is not None
    backbone.graph.parent.mkdir(parents=True)

    with FileLock(backbone.graph.with_suffix(".lock")):
        settled = settle_runtime(task_of(photos, made.options), backbone, 9999)

    assert runtime_of(settled.backbone) is None
    assert "its graph cannot be kept" in str(settled.reason)


def test_images_that_cannot_be_read_leave_pytorch(
    tmp_path: Path, made: Made, exports: list[nn.Module]
) -> None:
    photos = write_image_folder(tmp_path / "photos", each=2)
    for file in photos.rglob("*.png"):
        file.write_bytes(b"no image")

    settled = settle_runtime(task_of(photos, made.options), load(made.options), 9999)

    assert (runtime_of(settled.backbone), settled.reason) == (None, None)
    assert exports == []


def test_bfloat16_is_compared_with_the_faster_library(
    made: Made, photos: Path, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("difficulty_service.extraction.policy.BLOCK_IMAGES", 4)
    monkeypatch.setattr("difficulty_service.extraction.policy.NUM_BLOCKS", 2)

    compare_precisions(task_of(photos, made.options), load_backbone, [torch.bfloat16])

    assert len(exports) == 1


@pytest.mark.filterwarnings("ignore:these scores are unreliable")
def test_scores_are_those_of_pytorch_and_say_which_library_ran_the_network(
    tmp_path: Path,
    made: Made,
    photos: Path,
    exports: list[nn.Module],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"backbone": NAME, "weights": made.options.weights, "image_size": SIZE}
    options |= {"device": "cpu", "shrinkage": 0.5, "progress": False}
    by_torch = ds.score_dataset(photos, **options)
    assert exports == []
    monkeypatch.setattr(policy, "LEAST_IMAGES", 50)

    by_onnx = ds.score_dataset(photos, **options, out=tmp_path / "scores.parquet")

    assert len(exports) == 1
    assert by_torch.provenance.runtime is None
    assert by_onnx.provenance.runtime == "onnxruntime"
    assert read_description(tmp_path / "scores.features").runtime == "onnxruntime"
    np.testing.assert_allclose(by_onnx.rmd, by_torch.rmd, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore:these scores are unreliable")
def test_a_failed_export_is_a_warning_of_the_scores(
    tmp_path: Path, photos: Path, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "LEAST_IMAGES", 50)
    weights = saved(tmp_path, seed=1).weights  # and the graph is that of the first weights

    with pytest.warns(UserWarning, match="test_resnet runs by PyTorch, as exporting it .* differ"):
        scores = ds.score_dataset(
            photos,
            backbone=NAME,
            weights=weights,
            image_size=SIZE,
            shrinkage=0.5,
            device="cpu",
            progress=False,
        )

    assert len(exports) == 1
    assert scores.provenance.runtime is None
    assert len(scores) == 60


@pytest.mark.usefixtures("kept")
def test_an_actor_of_a_cluster_takes_the_graph_of_its_machine(made: Made, photos: Path) -> None:
    extractor = ShardExtractor()

    loaded = extractor.load(task_of(photos, made.options))

    assert runtime_of(extractor._backbone) == loaded.library == "onnxruntime"
    assert loaded.environment["weights"] == extractor._backbone.weights_sha256


def test_a_network_that_was_loaded_before_its_graph_was_kept_takes_it(
    made: Made, photos: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.rename(kept.with_suffix(".later"))
    backbone = load(made.options)
    kept.with_suffix(".later").rename(kept)
    monkeypatch.setattr(policy, "first_images", lambda *_: pytest.fail("needs no images"))

    settled = settle_runtime(task_of(photos, made.options), backbone, 9999)

    assert (runtime_of(backbone), runtime_of(settled.backbone)) == (None, "onnxruntime")


def test_an_actor_exports_what_is_not_kept_yet(
    made: Made, photos: Path, exports: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "LEAST_IMAGES", 50)

    ShardExtractor().load(task_of(photos, made.options))

    assert len(exports) == 1
