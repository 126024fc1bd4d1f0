"""Small tables of the data sets of the papers, cut from the real ones."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from difficulty_service.base.files import replacing

TRAINING, TEST = 300, 120
VOCABULARY = 2000
SOURCES = {
    "cifar10": ("cifar10_train_1", TRAINING),
    "cifar10_test": ("cifar10_test", TEST),
    "cifar100": ("cifar100_train_1", 2 * TRAINING),
    "cifar100_test": ("cifar100_test", TEST),
    "tiny": ("tiny_imagenet_val2000", 3 * TRAINING),
    "mnist": ("mnist_ood2000", TEST),
    "news": ("newsgroups20_bydate", 4 * TRAINING),
    "sst": ("sst", 2 * TRAINING),
}
"""Table and number of rows of each."""


def prepare(shared: Path, folder: Path) -> dict[str, str]:
    """Writes the tables that are missing.

    Args:
        shared: Folder of the real data and weights.
        folder: Folder for the small ones.

    Returns:
        Locations by name: the tables, `mobilenet`, weights, and `bert`, a random network of texts.
    """
    small = folder / "data"
    small.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, (source, rows) in SOURCES.items():
        path = small / f"{name}.parquet"
        if not path.exists():
            table = pq.read_table(shared / "data" / f"{source}.parquet")
            cut = _whole_classes if name == "tiny" else _evenly
            with replacing(path) as temporary:  # or half a table would be taken for a whole one
                pq.write_table(cut(table, rows), temporary)
        found[name] = str(path)
    weights = shared / "weights/mobilenetv2_100.imagenet1k.safetensors"
    bert = small / "bert"
    if not (bert / "model.safetensors").exists():  # which is written last
        _write_bert(bert, pq.read_table(found["news"], columns=["text"])["text"].to_pylist())
    return {**found, "mobilenet": str(weights), "bert": str(bert)}


def taken(commands: Sequence[str]) -> str:
    """What some commands take from which tables, in words; empty where they need none."""
    return ", ".join(
        f"{rows} rows of {source}"
        for name, (source, rows) in SOURCES.items()
        if any(f"{{{name}}}" in command for command in commands)
    )


def _write_bert(folder: Path, texts: Sequence[str]) -> None:
    """A small random BERT, with a tokenizer that knows the frequent words of some texts."""
    import transformers

    counts = Counter(word for text in texts for word in text.lower().split() if word.isalpha())
    frequent = [word for word, _ in counts.most_common(VOCABULARY)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *frequent]
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    tokens = {word: number for number, word in enumerate(words)}
    transformers.BertTokenizer(vocab=tokens).save_pretrained(folder)
    transformers.BertModel(config).save_pretrained(folder)


def _evenly(table: pa.Table, rows: int) -> pa.Table:
    """Rows at equal distances, in the order of the table."""
    return table.take(pa.array([row * table.num_rows // rows for row in range(rows)]))


def _whole_classes(table: pa.Table, rows: int) -> pa.Table:
    """About as many rows, of the first classes alone, so that each has several images."""
    labels = table["label"]
    most = rows * len(labels.unique()) // table.num_rows
    return table.filter(pc.less(labels, most))
