"""Extraction on a GPU gives the features of the CPU, and waits for a batch once."""

from pathlib import Path

import pytest

from tests.pretend.budget import BUDGET, require_within
from tests.pretend.conftest import Call

PATHS = "tests.pretend.extraction_paths"

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "builtin": ("builtin", 32),
    "builtin-photos": ("builtin-photos", 64),
    "builtin-text": ("builtin-text", None),
    "timm, convolutions": ("timm:resnet18.tv_in1k", 32, 32),
    "timm, transformer": ("timm:vit_tiny_patch16_224.augreg_in21k", 32, 32),
}

OTHERS = {"JPEGs by the GPU", "open_clip", "transformers", "transformers, causal", "the server"}


def test_every_path_of_extraction_has_a_budget() -> None:
    assert set(BUDGET["extraction"]) == {*ARGUMENTS, *OTHERS}


@pytest.mark.long
@pytest.mark.parametrize("path", ARGUMENTS)
def test_a_backbone_keeps_to_its_budget_and_has_the_features_of_the_cpu(
    path: str, on_gpus: Call
) -> None:
    counted = on_gpus(f"{PATHS}:extract", *ARGUMENTS[path])

    assert counted["apart"] < 1e-5
    require_within("extraction", path, counted)


@pytest.mark.long
def test_images_that_processes_decode_keep_to_the_same_budget(on_gpus: Call) -> None:
    counted = on_gpus(f"{PATHS}:extract_by_processes")

    assert counted["by processes"] == [True]
    assert counted["apart"] < 1e-5
    require_within("extraction", "builtin", counted)


@pytest.mark.long
@pytest.mark.parametrize("announced", [False, True])
def test_an_actor_starts_the_processes_that_decode_once_for_all_its_shards(
    announced: bool,  # noqa: FBT001 - a parameter of the test
    on_gpus: Call,
) -> None:
    counted = on_gpus(f"{PATHS}:extract_as_actor", announced)

    assert counted["starts"] == 1
    assert counted["apart"] < 1e-5


@pytest.mark.slow
def test_clip_keeps_to_its_budget_and_has_the_features_of_the_cpu(
    tmp_path: Path, on_gpus: Call
) -> None:
    counted = on_gpus(f"{PATHS}:extract_by_clip", str(tmp_path))

    assert counted["apart"] < 1e-5
    require_within("extraction", "open_clip", counted)


def test_an_encoder_of_texts_keeps_to_its_budget_and_has_the_features_of_the_cpu(
    small_bert: Path, on_gpus: Call
) -> None:
    counted = on_gpus(f"{PATHS}:extract", f"transformers:{small_bert}", None)

    assert counted["apart"] < 1e-5
    require_within("extraction", "transformers", counted)


def test_a_causal_encoder_of_texts_keeps_to_its_budget_and_has_the_features_of_the_cpu(
    small_bert: Path, tmp_path: Path, on_gpus: Call
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3Config(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=12,
        pad_token_id=0,
    )
    transformers.AutoTokenizer.from_pretrained(small_bert).save_pretrained(tmp_path)
    transformers.Qwen3Model(config).save_pretrained(tmp_path)

    counted = on_gpus(f"{PATHS}:extract", f"transformers:{tmp_path}", None)

    assert counted["apart"] < 1e-5
    require_within("extraction", "transformers, causal", counted)


def test_the_server_keeps_to_its_budget_and_has_the_features_of_the_cpu(on_gpus: Call) -> None:
    counted = on_gpus(f"{PATHS}:encode_online")

    assert counted["apart"] < 1e-5
    require_within("extraction", "the server", counted)


@pytest.mark.slow
def test_the_command_fits_and_scores_few_images_on_the_cpu_and_waits_only_to_load_the_network(
    tmp_path: Path, on_gpus: Call
) -> None:
    counted = on_gpus(f"{PATHS}:score_again", str(tmp_path))

    assert counted["wait"] == 0
    before = ("difficulty_service/base/devices.py", "difficulty_service/backbones/")  # 1 + 1, load
    assert [line for line in counted["lines"] if not any(each in line for each in before)] == []
