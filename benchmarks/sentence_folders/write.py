"""Saves the encoders, or encodes the texts, with the Sentence Transformers that is installed.

    python write.py save FOLDER
    python write.py encode FOLDER ...

Stands alone, because the interpreters that run it have nothing of this project.
"""

# mypy: ignore-errors
# Types are those of the installed transformers, and this runs with older ones, too.
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEXTS = [
    "the cat sat",
    "The Dog ran to the cat and sat with the dog",
    "a",
    "  the cat sat",
    "the cat sat \n",
    "dogs: 12 of 40, and a cat with a very long name that no one has ever read to its end",
]
"""Of several lengths and cases, two of them with blanks around them."""

NAMES = {"README.md", ".gitattributes"}
"""Files that say nothing of the features."""


def word_pieces(folder: Path, *, lowercase: bool) -> Any:  # noqa: ANN401 - untyped
    """A tokenizer of BERT whose vocabulary is the letters and a few words."""
    from transformers import BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "ran"]
    vocabulary = [*words, *letters, *(f"##{each}" for each in letters)]
    file = folder / "vocab.txt"
    file.write_text("\n".join(vocabulary))
    if int(_version().split(".")[0]) >= 6:  # noqa: PLR2004 - the transformers beside it is 5
        vocab = {word: number for number, word in enumerate(vocabulary)}
        return BertTokenizerFast(vocab=vocab, do_lower_case=lowercase, model_max_length=64)
    return BertTokenizerFast(str(file), do_lower_case=lowercase, model_max_length=64)


def byte_tokens(*, most: int, begins: bool) -> Any:  # noqa: ANN401 - untyped
    """A tokenizer of bytes, for which every blank is a token; a special one ends each text.

    Args:
        most: Most tokens of a text.
        begins: Whether another special one begins it.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = "<s> $A </s>" if begins else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special, strict=True)),
        model_max_length=most,
        model_input_names=["input_ids", "attention_mask"],
    )


def network(folder: Path, config: Any, tokenizer: Any) -> str:  # noqa: ANN401 - untyped
    """Saves a random network with a tokenizer."""
    from transformers import AutoModel, AutoModelForTextEncoding

    auto = AutoModelForTextEncoding if config.model_type == "t5" else AutoModel
    auto.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def encoders(work: Path) -> Iterator[tuple[str, Any]]:
    """The encoders of this version with their names."""
    from sentence_transformers import SentenceTransformer, models
    from torch import nn
    from transformers import BertConfig, ModernBertConfig, Qwen2Config, T5Config

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    bert = BertConfig(vocab_size=96, intermediate_size=16, max_position_embeddings=48, **sizes)
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    modern = ModernBertConfig(
        vocab_size=260,
        intermediate_size=16,
        max_position_embeddings=64,
        **ends,
        **sizes,
        cls_token_id=1,
        sep_token_id=2,
    )
    qwen = Qwen2Config(
        vocab_size=260,
        intermediate_size=16,
        max_position_embeddings=64,
        num_key_value_heads=1,
        **ends,
        **sizes,
    )
    t5 = T5Config(vocab_size=260, d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2, **ends)

    def transformer(name: str, config: Any, tokenizer: Any, **options: Any) -> Any:  # noqa: ANN401
        (work / name).mkdir()
        return models.Transformer(network(work / name, config, tokenizer), **options)

    uncased, cased = word_pieces(work, lowercase=True), word_pieces(work, lowercase=False)
    yield (
        "mean-dense-normalize",
        SentenceTransformer(
            modules=[
                transformer("a", bert, uncased, max_seq_length=12),
                models.Pooling(8, "mean"),
                models.Dense(8, 6, activation_function=nn.Tanh()),
                models.Normalize(),
            ]
        ),
    )
    yield (
        "first-token-lowercase",
        SentenceTransformer(
            modules=[
                transformer("b", bert, cased, do_lower_case=True),
                models.Pooling(8, "cls"),
            ]
        ),
    )
    yield (
        "last-token-prompt",
        SentenceTransformer(
            modules=[
                transformer("c", qwen, byte_tokens(most=40, begins=False)),
                models.Pooling(8, "lasttoken"),
                models.Normalize(),
            ],
            prompts={"query": "query: ", "document": ""},
            default_prompt_name="query",
        ),
    )
    yield (
        "prompt-left-out",
        SentenceTransformer(
            modules=[
                transformer("d", modern, byte_tokens(most=10**6, begins=True)),
                models.Pooling(8, "mean", include_prompt=False),
            ],
            prompts={"topic": "topic:"},
            default_prompt_name="topic",
        ),
    )
    yield (
        "t5-dense",
        SentenceTransformer(
            modules=[
                transformer("e", t5, byte_tokens(most=30, begins=False)),
                models.Pooling(8, "mean"),
                models.Dense(8, 6, bias=False, activation_function=nn.Identity()),
                models.Normalize(),
            ]
        ),
    )
    if int(_version().split(".")[0]) < 6:  # noqa: PLR2004 - what follows came with 5.4 and later
        return
    yield (
        "length-and-dimensions",
        SentenceTransformer(
            modules=[
                transformer(
                    "f",
                    modern,
                    byte_tokens(most=60, begins=True),
                    processing_kwargs={"text": {"max_length": 20, "add_special_tokens": False}},
                ),
                models.Pooling(8, "mean"),
                models.Normalize(),
            ],
            truncate_dim=5,
        ),
    )
    yield (
        "dense-on-tokens-residual",
        SentenceTransformer(
            modules=[
                transformer("g", bert, uncased),
                models.Dense(8, 4, use_residual=True, module_input_name="token_embeddings"),
                models.Normalize(module_input_name="token_embeddings"),
                models.Pooling(4, "mean"),
                models.Dense(4, 4, use_residual=True, activation_function=nn.GELU()),
            ]
        ),
    )
    yield (
        "first-token-after-prompt",
        SentenceTransformer(
            modules=[
                transformer("h", bert, uncased),
                models.Pooling(8, "cls", include_prompt=False),
            ],
            prompts={"query": "the dog: "},
            default_prompt_name="query",
        ),
    )


def _version() -> str:
    import sentence_transformers

    return str(sentence_transformers.__version__)


def save(folder: Path) -> None:
    """Saves all encoders of this version below a folder."""
    import tempfile

    import torch

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as work:
        for name, encoder in encoders(Path(work)):
            # The usual deviation of .02 lets the states of all tokens look alike.
            with torch.no_grad():
                for parameter in encoder.parameters():
                    if parameter.ndim > 1:
                        parameter.normal_(std=0.5)
            encoder.save(str(folder / name))
            for each in NAMES:
                (folder / name / each).unlink(missing_ok=True)


def encode(folder: Path) -> list[list[float]]:
    """The embeddings of the texts."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    # One by one, so that no rounding depends on the padding.
    return [[float(f"{value:.9g}") for value in encoder.encode(text).tolist()] for text in TEXTS]


if __name__ == "__main__":
    if sys.argv[1] == "save":
        save(Path(sys.argv[2]))
    else:
        print(json.dumps([encode(Path(each)) for each in sys.argv[2:]]))
