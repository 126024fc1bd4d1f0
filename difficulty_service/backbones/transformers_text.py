"""Encoders of texts of the library transformers, as one vector per text.

The vector is what the files of Sentence Transformers beside the model state, or else the mean over
the tokens.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from difficulty_service.backbones.backbone import Backbone, BackboneOptions, TextPreprocessing
from difficulty_service.backbones.downloads import (
    DEFAULT_DOWNLOADS,
    Downloads,
    HubFile,
    fetch_files,
)
from difficulty_service.backbones.sentence_files import (
    TOKENS,
    VECTOR,
    Dense,
    Pooling,
    SentenceSettings,
    read_sentence_settings,
)
from difficulty_service.backbones.text_encoder import TextEncoder, refuse_image_options
from difficulty_service.backbones.weights import read_weights
from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import BackboneError, Setting
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.files import file_sha256

MAX_TOKENS = 512
"""Largest number of tokens of a text, special ones included, where the model states none; what
comes after is cut off."""

MAX_TOKENS_AT_ONCE = 2**14
"""Largest number of tokens, padding included, that go through the network together, unless one text
has more."""

UNSTATED_LENGTH = 10**9
"""Length from which on a tokenizer states none: the library writes 10**30 into it then."""

ENCODER_ALONE = {"t5", "mt5", "umt5"}
"""Types of networks whose decoder is of no use for vectors."""

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
    network.config.use_cache = False  # keys and values of tokens are for those that come later
    hidden = getattr(network.config, "hidden_size", None)
    if not isinstance(hidden, int) or tokenizer.pad_token_id is None:
        raise BackboneError(
            f"{name} is no encoder of texts: it has no hidden size or no padding token",
            parameter="backbone",
        )
    if stated.lowercase:
        _lowercase(tokenizer)
    length = max_tokens(tokenizer, network.config, stated.max_tokens)
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
    layers = {step: load_dense(name, step).to(options.device) for step in stated.dense}
    pooled = PooledTokens(
        *(network, int(tokenizer.pad_token_id), stated, prepare.prompt_length(), layers),
        options.device,
    )
    return TextEncoder(
        name=name,
        feature_dim=pooled.dim(hidden),
        preprocessing=TextPreprocessing(length, prepare, settings),
        weights_sha256=_digest(folder, stated.dense),
        network=pooled,
    )


@dataclass(frozen=True)
class Tokens:
    """Turns a text into ids of tokens."""

    tokenizer: Any
    length: int
    stated: SentenceSettings

    def __call__(self, text: str) -> Tensor:
        """Ids of the tokens of prompt and text, -1 after the end. Shape (length,), int64."""
        ids = self.tokenizer(
            self.stated.prompt + text,
            truncation=True,
            max_length=self.length,
            add_special_tokens=self.stated.special_tokens,
        )["input_ids"]
        padded = torch.full((self.length,), -1, dtype=torch.int64)
        padded[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
        return padded

    def prompt_length(self) -> int:
        """Number of tokens of the prompt, without a special one that ends a text."""
        if not self.stated.prompt:
            return 0
        ids = self("")
        ids = ids[ids >= 0]
        ends = len(ids) and int(ids[-1]) in self.tokenizer.all_special_ids
        return len(ids) - bool(ends)


class DenseModule(nn.Module):
    """A linear map and its activation, to which what goes in may be added."""

    def __init__(
        self, linear: nn.Linear, activation: nn.Module, residual: nn.Module | None
    ) -> None:
        super().__init__()
        self.linear, self.activation, self.residual = linear, activation, residual

    def forward(self, values: Tensor) -> Tensor:
        """Values (..., columns) to values (..., rows)."""
        result: Tensor = self.activation(self.linear(values))
        return result if self.residual is None else result + self.residual(values)


class KnownPadding(TorchFunctionMode):
    """A context in which the number of tokens in a mask is known, and no GPU is asked for it.

    transformers asks in each batch whether a token is padding, and would wait for the answer.

    Args:
        shape: Shape of the mask, (samples, tokens).
        num_tokens: Number of its tokens that are no padding.
    """

    def __init__(self, shape: torch.Size, num_tokens: int) -> None:
        super().__init__()
        self._shape, self._num_tokens = shape, num_tokens

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of any function
        """Calls a function, unless it counts the tokens of the mask or compares them with all."""
        if function in (Tensor.all, Tensor.sum) and len(args) == 1 and not kwargs:
            mask: Tensor = args[0]
            if mask.dtype == torch.bool and mask.shape == self._shape:
                is_full = self._num_tokens == mask.numel()
                return torch.tensor(is_full if function is Tensor.all else self._num_tokens)
        return function(*args, **(kwargs or {}))


@dataclass(frozen=True)
class PooledTokens:
    """The vector of each text, made of the last hidden states; tokens of padding do not count."""

    network: Any
    padding: int
    stated: SentenceSettings
    prompt_length: int
    layers: dict[Dense, DenseModule]
    device: torch.device

    def __call__(self, ids: Tensor) -> Tensor:
        """Vectors (samples, dim), float32, of ids (samples, length) on the CPU, -1 after a text."""
        lengths = (ids >= 0).sum(1)
        longest = max(1, int(lengths.max()))
        if len(ids) == 1 or len(ids) * longest <= MAX_TOKENS_AT_ONCE:
            known = KnownPadding(torch.Size((len(ids), longest)), int(lengths.sum()))
            with known if self.device.type == "cuda" else nullcontext():
                return self._encode(send(ids[:, :longest], self.device))
        # Texts of about a length together: one long text would make all of them as long.
        short, long = lengths.argsort().tensor_split(2)
        vectors = torch.cat([self(ids[short]), self(ids[long])])
        return vectors[send(torch.cat([short, long]).argsort(), self.device)]

    def dim(self, hidden: int) -> int:
        """Length of the vectors, for hidden states of that length."""
        dims = {TOKENS: hidden}
        for step in self.stated.steps:
            if isinstance(step, Pooling):
                dims[VECTOR] = dims[TOKENS]
            elif isinstance(step, Dense):
                dims[step.target] = self.layers[step].linear.out_features
            else:
                dims[step.target] = dims[step.source]
        return min(dims[VECTOR], self.stated.max_dim or dims[VECTOR])

    def _encode(self, ids: Tensor) -> Tensor:
        is_token = ids >= 0
        states = self.network(
            input_ids=ids.masked_fill(~is_token, self.padding), attention_mask=is_token.long()
        ).last_hidden_state.float()
        made = {TOKENS: states}  # (samples, tokens, dim), and the vector (samples, dim)
        for step in self.stated.steps:
            if isinstance(step, Pooling):
                made[VECTOR] = self._pool(step, made[TOKENS], is_token)
            elif isinstance(step, Dense):
                made[step.target] = self.layers[step](made[step.source])
            else:
                made[step.target] = nn.functional.normalize(made[step.source], dim=-1)
        return made[VECTOR][:, : self.stated.max_dim]

    def _pool(self, step: Pooling, states: Tensor, is_token: Tensor) -> Tensor:
        rows = torch.arange(len(states), device=states.device)
        if step.mode == "lasttoken":
            return states[rows, (is_token.sum(1) - 1).clamp(min=0)]
        if not step.with_prompt:
            is_token = is_token.clone()
            is_token[:, : self.prompt_length] = False
        if step.mode == "cls":
            return states[rows, is_token.long().argmax(1)]
        weights = is_token.float()
        return (states * weights.unsqueeze(2)).sum(1) / weights.sum(1, keepdim=True).clamp(min=1)


def load_dense(name: str, layer: Dense) -> DenseModule:
    """A dense layer in float32 on the CPU.

    Raises:
        BackboneError: The file has other tensors than the layer.
    """
    weights = read_weights(layer.weights)
    matrix = weights.get("linear.weight", torch.empty(0))
    if matrix.ndim != 2:  # noqa: PLR2004
        raise BackboneError(f"{name}: {layer.weights} holds no linear map", parameter="backbone")
    rows, columns = matrix.shape
    residual = nn.Identity() if rows == columns else nn.Linear(columns, rows, bias=False)
    made = DenseModule(
        nn.Linear(columns, rows, bias="linear.bias" in weights),
        getattr(nn, layer.activation)(),
        residual if layer.residual else None,
    )
    try:
        made.load_state_dict(weights)
    except RuntimeError as error:
        raise BackboneError(
            f"{name}: {layer.weights} holds {', '.join(sorted(weights))}; its dense layer has "
            f"{', '.join(made.state_dict())}",
            "copy the folder again",
            parameter="backbone",
        ) from error
    return made.eval().requires_grad_(requires_grad=False)


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
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        encodes = config.model_type in ENCODER_ALONE
        auto = transformers.AutoModelForTextEncoding if encodes else transformers.AutoModel
        network, loaded = auto.from_pretrained(
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
    """The most tokens of a text, special ones included.

    They are those that the files of Sentence Transformers state, else the tokenizer's, else those
    that the network has places for, else `MAX_TOKENS`; and never more than it has places for.
    RoBERTa and its relatives count places from the padding id on, so they have that many fewer.
    """
    places = getattr(config, "max_position_embeddings", None)
    if not (isinstance(places, int) and places > 0):  # XLNet writes -1 for any number
        places = None
    elif "roberta" in str(getattr(config, "model_type", "")):
        places -= int(config.pad_token_id or 0) + 1
    most = stated or tokenizer.model_max_length
    if most >= UNSTATED_LENGTH:
        most = places or MAX_TOKENS
    return int(min(most, places or most))


def _lowercase(tokenizer: Any) -> None:  # noqa: ANN401 - untyped
    """Has a tokenizer change texts to lower case first, where it does not do so by itself."""
    from tokenizers import normalizers

    backend = tokenizer.backend_tokenizer
    present: Any = backend.normalizer
    several = isinstance(present, normalizers.Sequence)
    steps = list(present) if several else [present]
    if not any(isinstance(each, normalizers.Lowercase) for each in steps):
        first = [normalizers.Lowercase(), *(each for each in steps if each is not None)]
        backend.normalizer = normalizers.Sequence(first)


def _digest(folder: Path, dense: tuple[Dense, ...]) -> str:
    """SHA-256 of the weights, whether in one file or in several, and of the configuration."""
    weights = sorted(folder.glob("model*.safetensors")) or [folder / "pytorch_model.bin"]
    layers = [layer.weights for layer in dense]
    digests = [file_sha256(each) for each in [folder / CONFIG_FILE, *weights, *layers]]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()
