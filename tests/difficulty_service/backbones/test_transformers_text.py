"""Encoders of transformers: a small random BERT that the tests save."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from difficulty_service.backbones import list_backbones, load_backbone
from difficulty_service.backbones.backbone import BackboneOptions, TextPreprocessing
from difficulty_service.backbones.transformers_text import max_tokens
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


POOLINGS = {
    "mean": lambda states: states.mean(dim=0),
    "cls": lambda states: states[0],
    "lasttoken": lambda states: states[-1],
}
FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "lasttoken": "pooling_mode_lasttoken",
}
TEXTS = ["the cat sat", "dogs ran the cat", "the"]


def stating(  # noqa: PLR0913 - one for each thing that a model states
    model: Path,
    folder: Path,
    pooling: object,
    *,
    normalise: bool = False,
    prompt: str = "",
    length: int | None = None,
    dense: nn.Linear | None = None,
) -> Path:
    """A copy of a model with the files in which Sentence Transformers states such things."""
    shutil.copytree(model, folder, dirs_exist_ok=True)
    kinds = ["Transformer", "Pooling"] + ["Dense"] * (dense is not None) + ["Normalize"] * normalise
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds) if place)]
    for path in paths:
        (folder / path).mkdir(exist_ok=True)
    modules = [
        {"idx": place, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling" / "config.json", pooling)
    write(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": True})
    prompts = {"prompts": {"label": prompt}, "default_prompt_name": "label" if prompt else None}
    write(folder / "config_sentence_transformers.json", prompts)
    if dense is not None:
        write(folder / "2_Dense" / "config.json", {"activation_function": "torch.nn.Tanh"})
        tensors = {f"linear.{key}": value for key, value in dense.state_dict().items()}
        save_file(tensors, folder / "2_Dense" / "model.safetensors")
    return folder


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))


def states_alone(folder: Path, text: str, most: int | None = None) -> torch.Tensor:
    """The last hidden states of a text without padding, as transformers gives them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokens = tokenizer(text, return_tensors="pt", truncation=most is not None, max_length=most)
    with torch.inference_mode():
        return model(**tokens).last_hidden_state[0]


@pytest.fixture(scope="module")
def small_qwen(small_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random decoder, whose tokens see those before them only, with the tokenizer of the BERT."""
    folder = tmp_path_factory.mktemp("qwen")
    tokenizer = transformers.AutoTokenizer.from_pretrained(small_bert)
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    transformers.Qwen3Model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_features_are_pooled_and_scaled_as_the_model_states(
    folder: Path,
    tmp_path: Path,
    pooling: str,
    normalise: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    flags = {flag: mode == pooling for mode, flag in FLAGS.items()}
    stated = stating(folder, tmp_path, flags, normalise=normalise)

    features = encode(stated, TEXTS)

    expected = torch.stack([POOLINGS[pooling](states_alone(folder, text)) for text in TEXTS])
    if normalise:
        expected /= expected.square().sum(dim=1, keepdim=True).sqrt()
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


def test_the_last_token_of_a_decoder_is_that_of_each_text_alone(
    small_qwen: Path, tmp_path: Path
) -> None:
    stated = stating(small_qwen, tmp_path, {"pooling_mode": "lasttoken"})

    features = encode(stated, TEXTS)

    expected = torch.stack([states_alone(small_qwen, text)[-1] for text in TEXTS])
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooled", [True, False])
def test_the_prompt_stands_in_front_and_counts_if_the_model_says_so(
    folder: Path,
    tmp_path: Path,
    pooled: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    pooling = {"pooling_mode": "mean", "include_prompt": pooled}
    stated = stating(folder, tmp_path, pooling, prompt="the Dog ")
    vocabulary = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    tokenizer = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=False)
    tokenizer.save_pretrained(stated)

    features = encode(stated, TEXTS)

    skipped = 0 if pooled else 3  # the first token of every text, and two words
    states = [states_alone(folder, f"the dog {text}")[skipped:] for text in TEXTS]
    expected = torch.stack([each.mean(dim=0) for each in states])
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


def test_dense_layers_follow_the_pooling_and_belong_to_the_weights(
    folder: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(16, 5)
    mean = {"pooling_mode": "mean"}
    stated = stating(folder, tmp_path / "dense", mean, dense=layer, normalise=True)
    options = BackboneOptions()

    features = encode(stated, TEXTS)

    pooled = torch.stack([states_alone(folder, text).mean(dim=0) for text in TEXTS])
    expected = nn.functional.normalize((pooled @ layer.weight.T + layer.bias).tanh())
    torch.testing.assert_close(features, expected.detach(), rtol=1e-5, atol=1e-6)
    plain, dense = (load_backbone(f"transformers:{each}", options) for each in (folder, stated))
    assert (plain.feature_dim, dense.feature_dim) == (16, 5)
    assert plain.weights_sha256 != dense.weights_sha256


def test_texts_are_cut_at_the_length_that_the_model_states(folder: Path, tmp_path: Path) -> None:
    stated = stating(folder, tmp_path, {"pooling_mode": "mean"}, length=4)

    (features,) = encode(stated, ["the cat sat the dog"])

    expected = states_alone(folder, "the cat sat the dog", 4).mean(dim=0)
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("stated", "tokenizer", "places", "most"),
    [
        (None, 10**30, None, 512),
        (None, 10**30, 8192, 8192),
        (None, 1024, 8192, 1024),
        (None, 1024, 512, 512),
        (None, 1024, -1, 1024),
        (2048, 1024, 8192, 2048),
        (2048, 10**30, None, 2048),
        (9000, 10**30, 8192, 8192),
    ],
)
def test_the_length_of_texts_is_stated_by_the_files_else_the_tokenizer_else_the_network(
    stated: int | None, tokenizer: int, places: int | None, most: int
) -> None:
    config = SimpleNamespace(max_position_embeddings=places)

    assert max_tokens(SimpleNamespace(model_max_length=tokenizer), config, stated) == most


def test_what_the_model_states_is_part_of_the_description(folder: Path, tmp_path: Path) -> None:
    stated = stating(folder, tmp_path, {"pooling_mode": "cls"}, prompt="the ", normalise=True)

    plain, other = (
        load_backbone(f"transformers:{each}", BackboneOptions()).preprocessing.describe()
        for each in (folder, stated)
    )

    changed = {key: value for key, value in other.items() if plain.get(key) != value}
    assert changed.pop("tokenizer_sha256")  # it is the tokenizer that changes texts to lower case
    assert changed == {
        "model": stated.name,
        "steps": ["cls", "unit length"],
        "prompt": "the ",
        "lowercase": True,
    }
    assert plain["steps"] == ["mean"]


def test_an_encoder_with_a_name_of_its_own_is_that_of_the_hub(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    hub = tmp_path / "models--Qwen--Qwen3-Embedding-0.6B"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("abc")
    stating(folder, hub / "snapshots" / "abc", {"pooling_mode": "lasttoken"})

    backbone = load_backbone("qwen3-embedding-0.6b", BackboneOptions())
    listing = {each.name: each.weights for each in list_backbones()}

    assert backbone.name == "qwen3-embedding-0.6b"
    assert backbone.preprocessing.describe()["model"] == "Qwen/Qwen3-Embedding-0.6B"
    assert backbone.preprocessing.describe()["steps"] == ["lasttoken"]
    assert listing["qwen3-embedding-0.6b"] == "cached"
    assert listing["embeddinggemma-300m"] == "to download"


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        ({"pooling_mode": "weightedmean"}, "states the pooling weightedmean, which is not"),
        (dict.fromkeys(FLAGS.values(), True), "states the pooling cls and mean and lasttoken"),
    ],
)
def test_a_pooling_that_is_not_computed_is_refused(
    folder: Path, tmp_path: Path, pooling: object, said: str
) -> None:
    stated = stating(folder, tmp_path, pooling)

    with pytest.raises(BackboneError, match=said):
        load_backbone(f"transformers:{stated}", BackboneOptions())


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
