"""Networks of transformers with a classifier: a small random BERT that the tests save."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.config import ModelConfig
from trainer.models import build_model
from trainer.samples import InputSpec
from trainer.transformers_files import load_subwords

transformers = pytest.importorskip("transformers")

TEXTS = ["the cat sat", "dogs ran the cat", "the"]
NUM_CLASSES = 3


def tokens_and_spec(folder: Path) -> tuple[list[list[int]], InputSpec]:
    subwords = load_subwords(str(folder))
    spec = InputSpec(
        (subwords.length,), None, None, subwords.vocabulary, str(folder), subwords.padding
    )
    return subwords.encode(TEXTS, subwords.length), spec


def padded(tokens: list[list[int]], padding: int, width: int) -> Tensor:
    return torch.tensor([row + [padding] * (width - len(row)) for row in tokens])


def build(folder: Path, spec: InputSpec, **options: object) -> nn.Module:
    return build_model(
        ModelConfig(name=f"transformers:{folder}", options=options), spec, NUM_CLASSES
    ).eval()


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_logits_are_those_of_the_pooled_states_of_each_text_alone(
    small_bert: Path, pooling: str
) -> None:
    tokens, spec = tokens_and_spec(small_bert)
    model = build(small_bert, spec, pooling=pooling)
    encoder = transformers.AutoModel.from_pretrained(small_bert).eval()

    logits = model(padded(tokens, 0, 12))

    for row, text in zip(logits, tokens, strict=True):
        states = encoder(input_ids=torch.tensor([text])).last_hidden_state[0]
        pooled = states[0] if pooling == "first" else states.mean(0)
        torch.testing.assert_close(row, model.get_submodule("classifier")(pooled))


def test_padding_changes_nothing(small_bert: Path) -> None:
    tokens, spec = tokens_and_spec(small_bert)
    model = build(small_bert, spec)

    torch.testing.assert_close(model(padded(tokens, 0, 7)), model(padded(tokens, 0, 12)))


def test_parameters_are_random_only_on_request(small_bert: Path) -> None:
    _, spec = tokens_and_spec(small_bert)
    saved = transformers.AutoModel.from_pretrained(small_bert).state_dict()
    name = "embeddings.word_embeddings.weight"

    loaded, random = (
        build(small_bert, spec, pretrained=each).get_submodule("encoder").state_dict()[name]
        for each in (True, False)
    )

    assert torch.equal(loaded, saved[name])
    assert not torch.equal(random, saved[name])


def test_every_parameter_takes_part_in_training(small_bert: Path) -> None:
    tokens, spec = tokens_and_spec(small_bert)
    model = build(small_bert, spec).train()

    model(padded(tokens, 0, 12)).square().sum().backward()

    without = {name for name, each in model.named_parameters() if each.grad is None}
    assert without == set()


def test_a_model_that_lacks_some_weights_is_refused(small_bert: Path, tmp_path: Path) -> None:
    _, spec = tokens_and_spec(small_bert)
    model = transformers.AutoModel.from_pretrained(small_bert)
    weights = model.state_dict()
    del weights["encoder.layer.1.output.dense.weight"]
    model.save_pretrained(tmp_path, state_dict=weights)

    with pytest.raises(ConfigError, match=r"no weights for 1 of .* encoder\.layer\.1\.output"):
        build(tmp_path, spec)


def test_a_pooling_that_does_not_exist_is_named(small_bert: Path) -> None:
    _, spec = tokens_and_spec(small_bert)

    with pytest.raises(ConfigError, match="'last' does not exist"):
        build(small_bert, spec, pooling="last")


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"transformers:{tmp_path} cannot be loaded"):
        load_subwords(str(tmp_path))


def test_without_a_network_a_model_of_the_hub_is_looked_for_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lookups: list[object]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(ConfigError, match=r"transformers:owner/name cannot be loaded: .*connect"):
        load_subwords("owner/name")

    assert len(lookups) == 1


def test_a_model_in_a_folder_needs_no_hub(small_bert: Path, lookups: list[object]) -> None:
    _, spec = tokens_and_spec(small_bert)
    build(small_bert, spec)

    assert lookups == []
