"""Tables of texts or trees as splits: what both kinds of samples have in common, and the texts.

A word is a run of letters and digits in lower case, with apostrophes inside: "Don't" is one word,
"e-mail" two; everything else separates words. Tokens count from 0, padding, over 1, any word that
is not in the vocabulary, to the words in order of descending frequency.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import DatasetError
from difficulty_service.base.plain_columns import plain_column
from difficulty_service.datasets.listing import choose_positions
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.table import build_table, list_table
from difficulty_service.datasets.table_columns import TEXT_NAMES, holds_text
from difficulty_service.datasets.table_files import (
    TableFile,
    find_tables,
    open_table_file,
    read_columns,
)
from trainer.config import TextData, WordData
from trainer.data.splits import (
    Splits,
    hold_out,
    named_by,
    open_other,
    skipped_entries,
    warnings_of,
    with_label_noise,
)
from trainer.samples import InputSpec, Samples
from trainer.transformers_files import load_subwords

Words = TypeVar("Words", bound=WordData)


@dataclass(frozen=True)
class TextTable:
    """The contents of a table."""

    location: str
    samples: Dataset
    texts: pa.ChunkedArray

    def texts_at(self, positions: Tensor) -> list[str]:
        """The texts at some positions."""
        return self.texts.take(pa.array(positions.numpy())).to_pylist()

    def ids_at(self, positions: Tensor) -> list[str]:
        """The sample ids at some positions."""
        return [self.samples.sample_ids[position] for position in positions.tolist()]

    def labels_at(self, positions: Tensor) -> Tensor:
        """The class indices at some positions, int64."""
        return torch.from_numpy(self.samples.labels).long()[positions]


@dataclass(frozen=True)
class Encoding(Generic[Words]):
    """How the texts of a table become the inputs of a model."""

    column_names: Sequence[str]
    encode: Callable[[TextTable, Tensor, InputSpec, torch.device], Samples]
    encode_training: Callable[[Words, TextTable, Tensor, torch.device], tuple[Samples, InputSpec]]

    def open_splits(self, config: Words, seed: int, device: torch.device) -> Splits:
        """Opens and splits tables; the vocabulary is that of the training texts."""
        with named_by("data.train", config.train):
            table = _read_table(self, config, config.train, config.split, config.label_column)
            chosen = torch.from_numpy(choose_positions(table.samples.labels, config.limit))
            labels = torch.from_numpy(table.samples.labels)
            kept, held_out = hold_out(labels[chosen], config.validation, seed)
            encoded, spec = self.encode_training(config, table, chosen[kept], device)
            train = replace(
                encoded,
                skipped=skipped_entries(table.samples),
                warnings=warnings_of(table.samples),
            )

        def opened(location: str, split: str | None, column: str | None) -> Samples:
            return self.open_samples(config, location, spec, device, split, column)

        ids, names = table.samples.sample_ids, table.samples.class_names
        column = config.label_column
        open_validation = partial(opened, split=config.validation_split, column=column)
        column = config.test_label_column or column
        open_test = partial(opened, split=config.test_split, column=column)
        return Splits(
            train=with_label_noise(train, config.label_noise, seed),
            validation=(
                self.encode(table, chosen[held_out], spec, device)
                if len(held_out)
                else open_other(config, "validation", names, ids, open_validation)
            ),
            test=open_other(config, "test", names, ids, open_test),
            spec=spec,
            all_ids=table.samples.sample_ids,
        )

    def open_samples(
        self,
        config: WordData,
        location: str,
        spec: InputSpec,
        device: torch.device,
        split: str | None = None,
        label_column: str | None = None,
    ) -> Samples:
        """Opens a table to evaluate a model on, with the class indices of that table.

        The text and id columns of the recipe apply; a split is a value of the column `split`.
        """
        table = _read_table(self, config, location, split, label_column)
        samples = self.encode(table, torch.arange(len(table.samples.labels)), spec, device)
        return replace(
            samples, skipped=skipped_entries(table.samples), warnings=warnings_of(table.samples)
        )

    def open_unlabelled(
        self,
        config: WordData,
        location: str,
        spec: InputSpec,
        device: torch.device,
        split: str | None,
    ) -> Samples:
        """Opens a table as `open_samples` does, but ignores its labels; all are of one class."""
        table = _read_table(self, config, location, split, None, unlabelled=True)
        samples = self.encode(table, torch.arange(len(table.samples.labels)), spec, device)
        return replace(samples, warnings=warnings_of(table.samples))


def _read_table(
    encoding: Encoding[Any],
    config: WordData,
    location: str,
    split: str | None,
    label_column: str | None,
    *,
    unlabelled: bool = False,
) -> TextTable:
    found = find_tables(location, split)
    names = (config.text_column, config.id_column, "label_name", "split", *encoding.column_names)
    text_columns = tuple(name for name in names if name)
    tables = [open_table_file(file, file.place.name, text_columns) for file in found.files]
    column = find_text_column(tables[0], config.text_column, encoding.column_names)
    # The service reads ids and labels; it takes the texts for paths of images and opens none.
    options = DatasetOptions(
        split=split,
        image_column=column,
        label_column=label_column,
        id_column=None if unlabelled else config.id_column,  # no result names an unlabelled text
        unlabelled=unlabelled,
    )
    listed = list_table(location, options)
    samples = build_table(listed, location, options)
    columns = (plain_column(read_columns(table, [column]).column(0)) for table in tables)
    chunks = [chunk for texts in columns for chunk in texts.cast(pa.large_string()).chunks]
    texts = pa.chunked_array(chunks, pa.large_string()).take(pa.array(listed.rows.rows))
    if texts.null_count:
        first = int(pc.index(pc.is_null(texts), value=True).as_py())
        raise DatasetError(
            f"text column {column!r} of {location!r} is null {texts.null_count} times, first at "
            f"sample {samples.sample_ids[first]!r}",
            "remove those rows",
        )
    return TextTable(location, samples, texts)


def find_text_column(table: TableFile, requested: str | None, preferred: Sequence[str]) -> str:
    """The column of texts: the one that is asked for, or else the first of the preferred."""
    names = (requested,) if requested else preferred
    for name in names:
        if name in table.schema.names and holds_text(table.schema.field(name).type):
            return name
    raise DatasetError(
        f"no column of texts called {' or '.join(map(repr, names))} in {table.name!r}, which has "
        f"{table.schema.names}",
        "name it with data.text_column",
    )


PADDING, UNKNOWN = 0, 1

MIN_COUNT = 2
"""Smallest number of occurrences in the training texts of a word with its own token."""

_SPECIAL = ("<padding>", "<unknown>")  # neither matches the expression below
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def build_vocabulary(words: Iterable[str], size: int) -> tuple[str, ...]:
    """The word of each token: the most frequent words, alphabetically where equally frequent.

    Padding and unknown words are not part of the size.
    """
    counts = Counter(words)
    frequent = [word for word, count in counts.items() if count >= MIN_COUNT]
    frequent.sort(key=lambda word: (-counts[word], word))
    return (*_SPECIAL, *frequent[:size])


def tokens_of(vocabulary: tuple[str, ...]) -> dict[str, int]:
    """The token of each word."""
    return {word: token for token, word in enumerate(vocabulary)}


def encode_texts(
    texts: Iterable[str], vocabulary: tuple[str, ...], length: int
) -> tuple[Tensor, Tensor]:
    """The first words of each text as tokens, and how many they are; see `pad`."""
    token_of = tokens_of(vocabulary)
    return pad(
        [[token_of.get(word, UNKNOWN) for word in split_words(text, length)] for text in texts],
        PADDING,
    )


def pad(texts: Iterable[Sequence[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Tokens of texts as one tensor, and the number of tokens of each.

    Int32 of shape (samples, longest), and int64 of shape (samples,).
    """
    rows = [np.array(tokens, np.int32) for tokens in texts]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    tokens = np.full((len(rows), max([1, *lengths.tolist()])), padding, dtype=np.int32)
    for row, values in zip(tokens, rows, strict=True):
        row[: len(values)] = values
    return torch.from_numpy(tokens), lengths


def split_words(text: str, length: int) -> Iterator[str]:
    """The first words of a text."""
    return (match.group() for match in islice(_WORD.finditer(text.lower()), length))


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
            yield self.tokens[send(positions, self.tokens.device), :width].long()


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
open_unlabelled_texts = TEXTS.open_unlabelled
