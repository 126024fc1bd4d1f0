"""Encoders of transformers: a small random BERT that the tests save."""

from pathlib import Path

import pytest
import torch

from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, TextPreprocessing
from difficulty_service.base.errors import BackboneError

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(small_bert: Path) -> Path:
    return small_bert


def encode(folder: Path, texts: list[str]) -> torch.Tensor:
    backbone = load_backbone(f"transformers:{folder}", BackboneOptions())
    assert isinstance(backbone.preprocessing, TextPreprocessing)
    return backbone.encode(torch.stack([backbone.preprocessing.prepare(each) for each in texts]))


def test_features_are_the_mean_over_the_tokens_of_each_text_alone(folder: Path) -> None:
    texts = ["the cat sat", "dogs ran the cat", "the"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()

    features = encode(folder, texts)

    with torch.inference_mode():
        alone = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state for text in texts]
    expected = torch.stack([states[0].mean(dim=0) for states in alone])
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


def test_texts_are_cut_at_the_length_of_the_network(folder: Path) -> None:
    long, longer = encode(folder, ["cat " * 10, "cat " * 500])

    torch.testing.assert_close(long, longer)


def test_other_weights_have_another_digest(folder: Path, tmp_path: Path) -> None:
    model = transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        model.pooler.dense.bias.add_(1)
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)

    first, second = (
        load_backbone(f"transformers:{each}", BackboneOptions()) for each in (folder, tmp_path)
    )

    assert first.weights_sha256 != second.weights_sha256


def test_a_model_that_lacks_some_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    model = transformers.AutoModel.from_pretrained(folder)
    weights = model.state_dict()
    del weights["encoder.layer.1.output.dense.weight"]
    model.save_pretrained(tmp_path, state_dict=weights)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)

    with pytest.raises(BackboneError, match=r"no weights for 1 of .* encoder\.layer\.1\.output"):
        load_backbone(f"transformers:{tmp_path}", BackboneOptions())


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"no file config\.json and no file model"):
        load_backbone(f"transformers:{tmp_path}", BackboneOptions())


def test_without_a_network_the_error_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(BackboneError, match="cannot be downloaded"):
        load_backbone("transformers:nobody/nothing", BackboneOptions())
