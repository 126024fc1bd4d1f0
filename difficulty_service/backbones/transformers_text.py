"""Encoders of texts of the library transformers, as one vector per text.

The vector is what the files of Sentence Transformers beside the model state, or else the mean over
the tokens.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from difficulty_service.backbones.backbone import Backbone, BackboneOptions, TextPreprocessing
from difficulty_service.backbones.downloads import (
    DEFAULT_DOWNLOADS,
    Downloads,
    HubFile,
    fetch_files,
)
from difficulty_service.backbones.sentence_files import (
    DenseLayer,
    SentenceSettings,
    read_sentence_settings,
)
from difficulty_service.backbones.text_encoder import TextEncoder, refuse_image_options
from difficulty_service.backbones.weights import read_weights
from difficulty_service.base.errors import BackboneError, Setting
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.files import file_sha256

MAX_TOKENS = 512
"""Largest number of tokens of a text, special ones included, where the model states none; what
comes after is cut off."""

WEIGHTS_FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
CONFIG_FILE = "config.json"
IMAGE_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


def load_transformers(name: str, options: BackboneOptions, *, model: str) -> Backbone:
    """An encoder by its name on the hub, or by a folder that `save_pretrained` wrote."""
    refuse_image_options(name, options)
    folder = find_folder(name, model, options.downloads)
    stated = read_sentence_settings(name, folder)
    tokenizer, network = _load(name, folder)
    network = (
        network.eval().requires_grad_(requires_grad=False).to(options.device, options.precision)
    )
    length = max_tokens(tokenizer, network.config, stated.max_tokens)
    hidden = getattr(network.config, "hidden_size", None)
    if not isinstance(hidden, int) or tokenizer.pad_token_id is None:
        raise BackboneError(
            f"{name} is no encoder of texts: it has no hidden size or no padding token",
            parameter="backbone",
        )
    padding = int(tokenizer.pad_token_id)
    prepare = Tokens(tokenizer, length, stated)
    # The first call sets the truncation, which threads that share a tokenizer must not do at once.
    prepare("")
    settings = {
        "model": model if not Path(model).exists() else Path(model).name,
        "max_tokens": length,
        **stated.describe(),
        "tokenizer_sha256": hashlib.sha256(
            tokenizer.backend_tokenizer.to_str().encode()
        ).hexdigest(),
    }
    dense = [load_dense(layer).to(options.device) for layer in stated.dense]
    for each in dense:
        hidden = len(next(each.parameters()))
    return TextEncoder(
        name=name,
        feature_dim=hidden,
        preprocessing=TextPreprocessing(length, prepare, settings),
        weights_sha256=_digest(folder, stated.dense),
        network=PooledTokens(network, padding, stated, prepare.prompt_length(), dense),
    )


@dataclass(frozen=True)
class Tokens:
    """Turns a text into ids of tokens."""

    tokenizer: Any
    length: int
    stated: SentenceSettings

    def __call__(self, text: str) -> Tensor:
        """Ids of the tokens of prompt and text, -1 after the end. Shape (length,), int64."""
        whole = self.stated.prompt + text
        if self.stated.lowercase:
            whole = whole.lower()
        ids = self.tokenizer(whole, truncation=True, max_length=self.length)["input_ids"]
        padded = torch.full((self.length,), -1, dtype=torch.int64)
        padded[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return padded

    def prompt_length(self) -> int:
        """Number of tokens of the prompt, without the one that ends a text."""
        if not self.stated.prompt:
            return 0
        ids = self("")
        ids = ids[ids >= 0]
        ends = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id}
        return len(ids) - (int(ids[-1]) in ends)


@dataclass(frozen=True)
class PooledTokens:
    """The vector of each text, made of the last hidden states; tokens of padding do not count."""

    network: Any
    padding: int
    stated: SentenceSettings
    prompt_length: int
    dense: list[nn.Sequential]

    def __call__(self, ids: Tensor) -> Tensor:
        """Vectors (samples, dim), float32, of ids (samples, length), -1 after each text."""
        is_token = ids >= 0
        longest = max(1, int(is_token.sum(1).max()))
        ids, is_token = ids[:, :longest], is_token[:, :longest]
        states = self.network(
            input_ids=ids.masked_fill(~is_token, self.padding), attention_mask=is_token.long()
        ).last_hidden_state.float()
        vectors = self._pool(states, is_token)
        for layer in self.dense:
            vectors = layer(vectors)
        return nn.functional.normalize(vectors, dim=1) if self.stated.normalise else vectors

    def _pool(self, states: Tensor, is_token: Tensor) -> Tensor:
        if self.stated.pooling == "cls":
            return states[:, 0]
        if self.stated.pooling == "lasttoken":
            last = (is_token.sum(1) - 1).clamp(min=0)
            return states[torch.arange(len(states), device=states.device), last]
        weights = is_token.float()
        if not self.stated.pools_prompt:
            weights[:, : self.prompt_length] = 0
        return (states * weights.unsqueeze(2)).sum(1) / weights.sum(1, keepdim=True).clamp(min=1)


def load_dense(layer: DenseLayer) -> nn.Sequential:
    """A dense layer with its activation, in float32 on the CPU."""
    weights = read_weights(layer.weights)
    rows, columns = weights["linear.weight"].shape
    linear = nn.Linear(columns, rows, bias="linear.bias" in weights)
    linear.load_state_dict({key.removeprefix("linear."): value for key, value in weights.items()})
    activation = nn.Tanh() if layer.activation == "Tanh" else nn.Identity()
    return nn.Sequential(linear, activation).eval().requires_grad_(requires_grad=False)


def find_folder(name: str, model: str, downloads: Downloads = DEFAULT_DOWNLOADS) -> Path:
    """The folder with the weights, the configuration and the tokenizer of a model."""
    if Path(model).exists() or model.startswith(("/", "./", "../", "~")):
        folder = Path(model).expanduser()
    else:
        folder = _from_hub(name, model, downloads)
    missing = [] if (folder / CONFIG_FILE).is_file() else [CONFIG_FILE]
    if not any((folder / each).is_file() for each in WEIGHTS_FILES):
        missing.append(" or ".join(WEIGHTS_FILES[::2]))
    if missing:
        raise BackboneError(
            f"the folder {folder} has no file {' and no file '.join(missing)}",
            "name a folder that save_pretrained of transformers wrote, with its tokenizer",
            parameter="backbone",
        )
    return folder


def _from_hub(name: str, model: str, downloads: Downloads) -> Path:
    import httpx2
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        DryRunError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
    )

    wanted = ["*.json", "*.txt", "*.model", "model*.safetensors", "pytorch_model.bin"]
    wanted += [f"*_Dense/{each}" for each in WEIGHTS_FILES[::2]]
    try:
        try:
            cached = Path(snapshot_download(model, allow_patterns=wanted, local_files_only=True))
            if any((cached / each).is_file() for each in WEIGHTS_FILES):
                return cached
        except LocalEntryNotFoundError:
            pass
        offered = snapshot_download(model, allow_patterns=wanted, etag_timeout=10, dry_run=True)
        files = [
            HubFile(model, each.filename, each.file_size)
            # Weights last: by them, a folder that is there is taken for whole.
            for each in sorted(
                offered, key=lambda each: (each.filename in WEIGHTS_FILES, each.filename)
            )
            if each.will_download
        ]
        fetch_files(name, files, downloads)
        return Path(snapshot_download(model, allow_patterns=wanted, local_files_only=True))
    except (OSError, httpx2.HTTPError, HfHubHTTPError, HFValidationError, DryRunError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BackboneError(
            f"the files of {name} are neither a local folder nor in the cache folder "
            f"{constants.HF_HUB_CACHE}, and cannot be downloaded ({reason})",
            "run this once where there is a network and copy the cache folder, name a local "
            "folder, or do with the encoder that ships with the package: ",
            Setting("backbone", "builtin-text"),
            parameter="backbone",
        ) from None


def _load(name: str, folder: Path) -> tuple[Any, Any]:
    with needs_extra(name, "text", parameter="backbone"):
        import transformers
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        network, loaded = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        if any((folder / each).is_file() for each in IMAGE_PROCESSOR_FILES):
            raise BackboneError(
                f"{name} takes images, and encoders of transformers are for texts here",
                "choose it among those of timm or open_clip: timm:NAME or open_clip:ARCH/TAG",
                parameter="backbone",
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackboneError(
            f"{name} cannot be loaded from {folder}: {reason}", parameter="backbone"
        ) from error
    # Many saved models lack the pooler, which adds nothing to the features; others would be random.
    missing = sorted(each for each in loaded["missing_keys"] if not each.startswith("pooler."))
    if missing:
        raise BackboneError(
            f"{name} has no weights for {len(missing)} of its parameters, such as {missing[0]}",
            parameter="backbone",
        )
    return tokenizer, network


def max_tokens(tokenizer: Any, config: Any, stated: int | None) -> int:  # noqa: ANN401 - untyped
    """The most tokens that a tokenizer and a network allow of those stated, else of `MAX_TOKENS`.

    RoBERTa and its relatives count places from the padding id on, so they have that many fewer.
    """
    most = stated or MAX_TOKENS
    places = getattr(config, "max_position_embeddings", None) or most
    if "roberta" in str(getattr(config, "model_type", "")):
        places -= int(config.pad_token_id or 0) + 1
    return int(min(most, tokenizer.model_max_length, places))


def _digest(folder: Path, dense: tuple[DenseLayer, ...]) -> str:
    """SHA-256 of the weights, whether in one file or in several, and of the configuration."""
    weights = sorted(folder.glob("model*.safetensors")) or [folder / "pytorch_model.bin"]
    layers = [layer.weights for layer in dense]
    digests = [file_sha256(each) for each in [folder / CONFIG_FILE, *weights, *layers]]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()
