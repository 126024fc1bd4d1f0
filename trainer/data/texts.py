"""Labelled texts from tables as splits of tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from trainer.config import TextData
from trainer.data.splits import Splits
from trainer.data.words import Encoding, TextTable, build_vocabulary, encode_texts, pad, split_words
from trainer.samples import InputSpec, Samples
from trainer.transformers_files import load_subwords

TEXT_NAMES = ("text", "sentence", "document", "content")
"""Names of the column of texts, in order of preference."""


@dataclass(frozen=True)
class TextInputs:
    """Texts on the device.

    Attributes:
        tokens: Int32, padded at the end. Shape (samples, longest).
        lengths: Number of words of each text, int64 on the CPU. Shape (samples,).
    """

    tokens: Tensor
    lengths: Tensor

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:  # noqa: ARG002
        """Yields batches as wide as their longest text; see `trainer.samples.Inputs`."""
        for positions in plan:
            width = max([1, *self.lengths[positions].tolist()])
            yield self.tokens[positions.to(self.tokens.device), :width].long()


def _encode(table: TextTable, positions: Tensor, spec: InputSpec, device: torch.device) -> Samples:
    """The samples of a table at some positions, as tokens."""
    texts, length = table.texts_at(positions), spec.shape[0]
    if spec.tokenizer is None:
        tokens, lengths = encode_texts(texts, spec.vocabulary, length)
    else:
        subwords = load_subwords(spec.tokenizer)
        tokens, lengths = pad(subwords.encode(texts, length), subwords.padding)
    return Samples(
        sample_ids=table.ids_at(positions),
        labels=table.labels_at(positions),
        class_names=table.samples.class_names,
        inputs=TextInputs(tokens.to(device), lengths),
    )


def _encode_training(
    config: TextData, table: TextTable, positions: Tensor, device: torch.device
) -> tuple[Samples, InputSpec]:
    """The same of training texts, whose words are the vocabulary."""
    length = config.text_length
    words = (word for text in table.texts_at(positions) for word in split_words(text, length))
    vocabulary = build_vocabulary(words, config.vocabulary_size)
    spec = InputSpec(shape=(length,), vocabulary=vocabulary)
    return _encode(table, positions, spec, device), spec


def _encode_training_subwords(
    tokenizer: str, config: TextData, table: TextTable, positions: Tensor, device: torch.device
) -> tuple[Samples, InputSpec]:
    """The same by the tokens of a pretrained network."""
    subwords = load_subwords(tokenizer)
    length = min(config.text_length, subwords.length)
    spec = InputSpec((length,), None, None, subwords.vocabulary, tokenizer, subwords.padding)
    return _encode(table, positions, spec, device), spec


TEXTS = Encoding[TextData](TEXT_NAMES, _encode, _encode_training)


def open_text_splits(
    config: TextData, seed: int, device: torch.device, tokenizer: str | None = None
) -> Splits:
    """Opens and splits tables of texts, by words or by the tokens of a pretrained network."""
    if tokenizer is None:
        return TEXTS.open_splits(config, seed, device)
    training = partial(_encode_training_subwords, tokenizer)
    return replace(TEXTS, encode_training=training).open_splits(config, seed, device)


open_text_samples = TEXTS.open_samples
