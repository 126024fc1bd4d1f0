"""Folders that three versions of Sentence Transformers saved, and what it made of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, TextPreprocessing
from difficulty_service.backbones.text_encoder import TextEncoder
from difficulty_service.base.errors import BackboneError

pytest.importorskip("transformers")
FOLDERS = Path(__file__).parents[2] / "data" / "sentence_transformers"
RECORD = json.loads((FOLDERS / "embeddings.json").read_text())
TEXTS = RECORD["texts"]
NEWEST = RECORD["newest"]
NAMES = sorted(RECORD["embeddings"])
EXAMPLE = f"{NEWEST}/dense-on-tokens-residual"


def load(folder: Path) -> TextEncoder:
    backbone = load_backbone(f"transformers:{folder}", BackboneOptions())
    assert isinstance(backbone, TextEncoder)
    return backbone


def encode(backbone: TextEncoder, texts: list[str]) -> torch.Tensor:
    assert isinstance(backbone.preprocessing, TextPreprocessing)
    return backbone.encode(torch.stack([backbone.preprocessing.prepare(each) for each in texts]))


@pytest.mark.parametrize("name", NAMES)
def test_features_are_the_embeddings_of_the_package(name: str) -> None:
    backbone = load(FOLDERS / name)

    features = encode(backbone, TEXTS)

    expected = torch.tensor(RECORD["embeddings"][name][NEWEST])
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)
    assert backbone.feature_dim == expected.shape[1]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(NEWEST)])
def test_so_are_those_of_the_version_that_saved_it_but_that_it_took_no_blanks_around_a_text(
    name: str,
) -> None:
    saved_by = name.partition("/")[0]
    stripped = [each.strip() for each in TEXTS]

    features = encode(load(FOLDERS / name), stripped)

    expected = torch.tensor(RECORD["embeddings"][name][saved_by])
    if "prompt" in name:  # blanks between prompt and text stayed
        inside = [text.lstrip() == text for text in TEXTS]
        features, expected = features[inside], expected[inside]
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


def test_features_of_a_text_do_not_depend_on_how_many_tokens_go_through_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = load(FOLDERS / EXAMPLE)
    together = encode(backbone, TEXTS)

    monkeypatch.setattr("difficulty_service.backbones.transformers_text.MAX_TOKENS_AT_ONCE", 30)
    apart = encode(backbone, TEXTS)

    torch.testing.assert_close(apart, together, rtol=1e-5, atol=1e-6)


def change(path: Path, change_content: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change_content(content)
    path.write_text(json.dumps(content))


REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("1_Dense/config.json", {"dropout": 0.1}, "the key dropout in config.json"),
    ("1_Dense/config.json", {"module_output_name": "scores"}, "the name scores"),
    ("1_Dense/config.json", {"activation_function": "own.Tanh"}, "the activation Tanh"),
    ("2_Normalize/config.json", {"norm": 1}, "the key norm"),
    ("3_Pooling/config.json", {"tokens": "all"}, "the key tokens"),
    ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "the task fill-mask"),
    ("sentence_bert_config.json", {"module_output_name": "scores"}, "the output scores"),
    ("sentence_bert_config.json", {"processor_kwargs": {}}, "the key processor_kwargs"),
    ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length 0"),
    (
        "sentence_bert_config.json",
        {"modality_config": {"message": {"method": "forward"}}},
        "other states than the last hidden ones",
    ),
    (
        "sentence_bert_config.json",
        {"processing_kwargs": {"text": {"stride": 2}}},
        "stride for the tokenizer",
    ),
    (
        "sentence_bert_config.json",
        {"processing_kwargs": {"texts": {"max_length": 2}}},
        "texts in processing_kwargs",
    ),
    (
        "sentence_bert_config.json",
        {"processing_kwargs": {"common": {"truncation": False}}},
        "truncation False",
    ),
    ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "type SparseEncoder"),
    ("config_sentence_transformers.json", {"truncate_dim": "5"}, "truncate_dim 5"),
    ("config_sentence_transformers.json", {"default_prompt_name": "own"}, "prompt own"),
    ("config_sentence_transformers.json", {"scale": 2}, "the key scale"),
]


@pytest.mark.parametrize(("file", "stated", "said"), REFUSED)
def test_what_is_not_computed_is_refused_and_the_remedy_helps(
    tmp_path: Path, file: str, stated: dict[str, object], said: str
) -> None:
    folder = Path(shutil.copytree(FOLDERS / EXAMPLE, tmp_path / "folder"))
    change(folder / file, lambda content: content.update(stated))

    with pytest.raises(BackboneError, match=said) as refusal:
        load(folder)

    if "take " in str(refusal.value):
        (key,) = stated
        assert f"take {key}" in str(refusal.value) or f"of {key}" in str(refusal.value)
        change(folder / file, lambda content: content.pop(key))
    else:
        assert "remove modules.json" in str(refusal.value)
        (folder / "modules.json").unlink()
    assert encode(load(folder), TEXTS).isfinite().all()


@pytest.mark.parametrize(
    ("place", "module", "said"),
    [
        (1, {"type": "own_code.Dense"}, "the module own_code.Dense"),
        (2, {"type": "sentence_transformers.models.CNN"}, "the module CNN"),
        (0, {"path": "0_Transformer"}, "a network in 0_Transformer"),
        (3, {"type": "sentence_transformers.models.Normalize"}, "unit length before there is"),
    ],
)
def test_steps_that_are_not_computed_are_refused(
    tmp_path: Path, place: int, module: dict[str, str], said: str
) -> None:
    folder = Path(shutil.copytree(FOLDERS / EXAMPLE, tmp_path / "folder"))
    change(folder / "modules.json", lambda content: content[place].update(module))
    if "Normalize" in str(module):
        (folder / "3_Pooling" / "config.json").write_text("{}")

    with pytest.raises(BackboneError, match=said):
        load(folder)


def test_a_folder_without_a_pooling_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDERS / EXAMPLE, tmp_path / "folder"))
    change(folder / "modules.json", lambda content: content.__delitem__(slice(1, None)))

    with pytest.raises(BackboneError, match="states no pooling"):
        load(folder)


def test_a_dense_layer_with_other_tensors_than_it_states_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDERS / EXAMPLE, tmp_path / "folder"))
    file = folder / "1_Dense" / "model.safetensors"
    tensors = load_file(file)
    del tensors["residual.weight"]
    save_file(tensors, file)

    with pytest.raises(BackboneError, match=r"holds linear.bias, linear.weight; its dense layer"):
        load(folder)
