"""Tokenizers and networks of the library transformers, from its hub or from a folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import ConfigError
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.hub import asking_hub

PREFIX = "transformers:"
"""Of the names of models that are networks of transformers."""

MAX_TOKENS = 512
"""Largest number of tokens of a text, special ones included."""


@dataclass(frozen=True)
class Subwords:
    """Splits texts into at most `length` tokens of those that a pretrained network knows."""

    tokenizer: Any
    vocabulary: tuple[str, ...]
    padding: int
    length: int

    def encode(self, texts: Sequence[str], length: int) -> list[list[int]]:
        """The first tokens of each text, with the special ones of the network."""
        encoded = self.tokenizer(list(texts), truncation=True, max_length=length)
        ids: list[list[int]] = encoded["input_ids"]
        return ids


def encoder_of(model: str) -> str | None:
    """Name on the hub, or folder, of a model called `transformers:NAME`; None for other models."""
    return model.removeprefix(PREFIX) if model.startswith(PREFIX) else None


def load_subwords(name: str) -> Subwords:
    """The tokenizer of a network."""
    transformers = _package(name)
    with _named(name):
        tokenizer = transformers.AutoTokenizer.from_pretrained(_place(name))
        config = transformers.AutoConfig.from_pretrained(_place(name))
    if tokenizer.pad_token_id is None:
        raise ConfigError(
            f"{PREFIX}{name} has no token for padding", "choose an encoder such as BERT"
        )
    return Subwords(
        tokenizer,
        tuple(tokenizer.convert_ids_to_tokens(range(len(tokenizer)))),
        int(tokenizer.pad_token_id),
        _max_tokens(tokenizer, config),
    )


def load_network(name: str, *, pretrained: bool) -> Any:  # noqa: ANN401 - no types
    """A network that takes `input_ids` and `attention_mask`, without a classifier."""
    transformers = _package(name)
    loaded: dict[str, Any] = {"missing_keys": []}
    with _named(name):
        if pretrained:
            network, loaded = transformers.AutoModel.from_pretrained(
                _place(name), output_loading_info=True
            )
        else:
            config = transformers.AutoConfig.from_pretrained(_place(name))
            network = transformers.AutoModel.from_config(config)
    # The layer that some have above the first token is not used, and many files lack it.
    if hasattr(network, "pooler"):
        network.pooler = None
    # Others would be random.
    missing = sorted(each for each in loaded["missing_keys"] if not each.startswith("pooler."))
    if missing:
        raise ConfigError(
            f"{PREFIX}{name} has no weights for {len(missing)} of its parameters, such as "
            f"{missing[0]}",
            "set model.pretrained = false for random ones",
        )
    return network


def _package(name: str) -> Any:  # noqa: ANN401 - a module
    with needs_extra(f"{PREFIX}{name}", "text"):
        import transformers
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return transformers


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Puts the name of a model in front of the errors of the library."""
    try:
        with nullcontext() if Path(_place(name)).is_dir() else asking_hub():
            yield
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"{PREFIX}{name} cannot be loaded: {reason}",
            "name a folder that save_pretrained of transformers wrote, with its tokenizer, or run "
            "this once where there is a network",
        ) from error


def _place(name: str) -> str:
    folder = Path(name).expanduser()
    return str(folder) if folder.is_dir() else name


def _max_tokens(tokenizer: Any, config: Any) -> int:  # noqa: ANN401 - classes without types
    """RoBERTa and its relatives count places from the padding on, and have that many fewer."""
    places = getattr(config, "max_position_embeddings", None) or MAX_TOKENS
    if "roberta" in str(getattr(config, "model_type", "")):
        places -= int(config.pad_token_id or 0) + 1
    return int(min(MAX_TOKENS, tokenizer.model_max_length, places))
