"""What a model of texts states about its vectors, in files of Sentence Transformers beside it.

`modules.json` lists the steps: the network, how its tokens are pooled, dense layers, and scaling to
unit length. `sentence_bert_config.json` says how a text is tokenised, and
`config_sentence_transformers.json` has the prompt in front of it and the length of the vector.

A folder means what Sentence Transformers 6.2 makes of it, whichever version saved it. What is not
computed here is refused, and so is a key that is not known: it may change the vectors.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import BackboneError
from difficulty_service.base.json_text import parse_json

MODULES_FILE = "modules.json"
VECTORS_FILE = "config_sentence_transformers.json"
NETWORK_FILES = tuple(
    f"sentence_{each}_config.json"
    for each in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the file about the tokens, of which the first that is there counts."""

TOKENS, VECTOR = "token_embeddings", "sentence_embedding"
"""What a step works on: the states of all tokens, or the vector that the pooling made of them."""

POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
"""Keys of the older format, one of which is true, and what the newer one calls them."""

POOLINGS = ("mean", "cls", "lasttoken")
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
"""Classes of `torch.nn` that may follow a dense layer; each is made without arguments."""

POOLING_KEYS = {
    *POOLING_FLAGS,
    *("pooling_mode", "include_prompt", "embedding_dimension", "word_embedding_dimension"),
}
NAMED_KEYS = {"module_input_name", "module_output_name"}
DENSE_KEYS = {
    *NAMED_KEYS,
    *("in_features", "out_features", "bias", "activation_function", "use_residual"),
}
NETWORK_KEYS = {
    *("max_seq_length", "do_lower_case", "transformer_task", "modality_config"),
    *("module_output_name", "processing_kwargs"),
    # Of the memory, and of queries and documents, which are not asked for as such.
    *("unpad_inputs", "query_length", "document_length", "query_expansion"),
}
VECTORS_KEYS = {
    *("prompts", "default_prompt_name", "truncate_dim", "model_type"),
    # How vectors are compared, and what was installed or must be.
    *("similarity_fn_name", "__version__", "requirements"),
}
CALL_KINDS = {"text", "common", "chat_template", "image", "audio", "video"}
"""Keys of `processing_kwargs`, of which the first two are about texts."""

TEXT_KEYS = {"max_length", "add_special_tokens", "truncation", "padding", "pad_to_multiple_of"}
"""Arguments of a tokenizer; those of the padding do not matter, as it does not count."""

PLAIN_MODALITIES = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
CUTS = (True, "longest_first", "only_first")
"""Values of `truncation`, all of which cut the end of a text that has no second part."""


@dataclass(frozen=True)
class Pooling:
    """Makes one vector of the states of the tokens.

    Attributes:
        mode: `mean` over the tokens, `cls` for the first one or `lasttoken`.
        with_prompt: Whether the mean is also over the tokens of the prompt, and the first token
            one of them.
    """

    mode: str = "mean"
    with_prompt: bool = True

    def describe(self) -> str:
        """What it does, for provenance."""
        return self.mode if self.with_prompt else f"{self.mode} without the prompt"


@dataclass(frozen=True)
class Dense:
    """A dense layer.

    Attributes:
        weights: File of its weights.
        activation: Class of `torch.nn`, one of `ACTIVATIONS`, that follows the linear map.
        residual: Whether what goes in is added to what comes out.
        source: What it is applied to, `TOKENS` or `VECTOR`.
        target: What it makes, of the same two.
    """

    weights: Path
    activation: str = "Tanh"
    residual: bool = False
    source: str = VECTOR
    target: str = VECTOR

    def describe(self) -> str:
        """What it does, for provenance."""
        added = " with residual" if self.residual else ""
        return f"dense {self.activation}{added}{_places(self.source, self.target)}"


@dataclass(frozen=True)
class Normalise:
    """Scales vectors to unit length; `source` and `target` are as those of `Dense`."""

    source: str = VECTOR
    target: str = VECTOR

    def describe(self) -> str:
        """What it does, for provenance."""
        return f"unit length{_places(self.source, self.target)}"


Step = Pooling | Dense | Normalise


def _places(source: str, target: str) -> str:
    return "" if source == target == VECTOR else f" from {source} to {target}"


@dataclass(frozen=True)
class SentenceSettings:
    """How a text becomes tokens, and their last hidden states its vector.

    Attributes:
        steps: What makes the vector of the states, in order.
        prompt: Text in front of every text.
        lowercase: Whether texts are changed to lower case first.
        max_tokens: Most tokens of a text; None where these files do not say.
        special_tokens: Whether the tokens that begin and end a text are added.
        max_dim: Length to which the vector is cut at the end; None to keep it whole.
    """

    steps: tuple[Step, ...] = (Pooling(),)
    prompt: str = ""
    lowercase: bool = False
    max_tokens: int | None = None
    special_tokens: bool = True
    max_dim: int | None = None

    @property
    def dense(self) -> tuple[Dense, ...]:
        """The dense layers among the steps."""
        return tuple(each for each in self.steps if isinstance(each, Dense))

    def describe(self) -> dict[str, object]:
        """JSON values for provenance: the steps, and what differs from a plain encoder."""
        stated: dict[str, tuple[object, object]] = {
            "prompt": (self.prompt, ""),
            "lowercase": (self.lowercase, False),
            "special_tokens": (self.special_tokens, True),
            "max_dim": (self.max_dim, None),
        }
        return {"steps": [each.describe() for each in self.steps]} | {
            name: value for name, (value, usual) in stated.items() if value != usual
        }


@dataclass(frozen=True)
class _File:
    """A file of settings: its JSON, and where it is for the messages about it."""

    name: str
    path: Path
    content: dict[str, Any] = field(default_factory=dict)

    def known(self, keys: Iterable[str]) -> dict[str, Any]:
        """The content, whose keys are among some; what is null is as if it were left out."""
        if not isinstance(self.content, dict):
            raise _damaged(self.name, self.path, "it holds no object")
        for key in self.content:
            if key not in keys:
                raise self.refusal(f"the key {key}", key)
        return {key: value for key, value in self.content.items() if value is not None}

    def refusal(self, what: str, key: str) -> BackboneError:
        return BackboneError(
            f"{self.name} states {what} in {self.path.name}, which is not computed here",
            f"take {key} out of {self.path} in a copy of the folder if the vectors should do "
            "without it, or choose another encoder",
            parameter="backbone",
        )


def read_sentence_settings(name: str, folder: Path) -> SentenceSettings:
    """What the files beside a model state; a plain mean where there is no `modules.json`.

    Raises:
        BackboneError: A file cannot be read, or states something that is not computed here.
    """
    vectors = _read(name, folder / VECTORS_FILE)
    whole = vectors.known(VECTORS_KEYS)
    if whole.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise vectors.refusal(f"the model type {whole['model_type']}", "model_type")
    dimensions = whole.get("truncate_dim")
    if not (dimensions is None or (type(dimensions) is int and dimensions > 0)):
        raise vectors.refusal(f"truncate_dim {dimensions}", "truncate_dim")
    found = [folder / each for each in NETWORK_FILES if (folder / each).is_file()]
    network = _read(name, found[0] if found else folder / NETWORK_FILES[0])
    tokens, text = _tokens_of(network)
    length_key = "max_length" if "max_length" in text else "max_seq_length"
    length = (tokens | text).get(length_key)
    if not (length is None or (type(length) is int and length > 0)):
        raise network.refusal(f"{length_key} {length}", length_key)
    return SentenceSettings(
        steps=_read_steps(name, folder),
        prompt=_prompt_of(vectors, whole),
        lowercase=bool(tokens.get("do_lower_case")),
        max_tokens=length,
        special_tokens=bool(text.get("add_special_tokens", True)),
        max_dim=dimensions,
    )


def _prompt_of(file: _File, whole: Mapping[str, Any]) -> str:
    """The default prompt; those of queries and of documents are empty where they are not stated."""
    chosen = whole.get("default_prompt_name")
    prompts = {"query": "", "document": "", **whole.get("prompts", {})}
    if chosen is not None and chosen not in prompts:
        raise file.refusal(f"the default prompt {chosen}, which has no text", "default_prompt_name")
    return prompts.get(chosen) or ""


def _tokens_of(file: _File) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file states about the tokens, and how the tokenizer is called."""
    stated = file.known(NETWORK_KEYS)
    task = stated.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise file.refusal(f"the task {task}", "transformer_task")
    if stated.get("modality_config", PLAIN_MODALITIES) != PLAIN_MODALITIES:
        raise file.refusal("other states than the last hidden ones of texts", "modality_config")
    output = stated.get("module_output_name", TOKENS)
    if output != TOKENS:
        raise file.refusal(f"the output {output}", "module_output_name")
    calls = stated.get("processing_kwargs", {})
    for kind in calls:
        if kind not in CALL_KINDS:
            raise file.refusal(f"{kind} in processing_kwargs", f"{kind} of processing_kwargs")
    text = {**calls.get("text", {}), **calls.get("common", {})}  # the latter wins there
    for key in text:
        if key not in TEXT_KEYS:
            raise file.refusal(f"{key} for the tokenizer", f"{key} of processing_kwargs")
    if text.get("truncation", True) not in CUTS:
        raise file.refusal(f"truncation {text['truncation']}", "truncation of processing_kwargs")
    return stated, text


def _read_steps(name: str, folder: Path) -> tuple[Step, ...]:
    modules: Any = _read(name, folder / MODULES_FILE).content
    if not modules:
        return (Pooling(),)
    steps: list[Step] = []
    for place, module in enumerate(modules):
        try:
            package, _, kind = str(module["type"]).rpartition(".")
            path = str(module["path"])
        except (TypeError, KeyError) as error:
            raise _damaged(name, folder / MODULES_FILE, f"a module has no {error}") from error
        if package.partition(".")[0] != "sentence_transformers":
            raise _unknown(name, f"the module {module['type']}")
        if kind == "Transformer":
            if place or path not in {"", "."}:
                raise _unknown(name, f"a network in {path or 'its folder'} at place {place}")
        elif kind in STEPS:
            file = _read(name, folder / path / "config.json")
            steps.append(STEPS[kind](name, file))
        else:
            raise _unknown(name, f"the module {kind}")
    _require_order(name, steps)
    return tuple(steps)


def _require_order(name: str, steps: Iterable[Step]) -> None:
    """Refuses steps one of which needs what none before it makes, and those that make no vector."""
    made = {TOKENS}
    for step in steps:
        source, target = (
            (TOKENS, VECTOR) if isinstance(step, Pooling) else (step.source, step.target)
        )
        if source not in made:
            raise _unknown(name, f"{step.describe()} before there is {source}")
        made.add(target)
    if VECTOR not in made:
        raise _unknown(name, "no pooling")


def _read_pooling(name: str, file: _File) -> Pooling:
    """The one way of pooling; the mean where nothing is stated."""
    config = file.known(POOLING_KEYS)
    stated = config.get("pooling_mode")
    modes = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag)]
    if isinstance(stated, str):
        modes = [stated]
    elif isinstance(stated, list):
        modes = [str(mode) for mode in stated]
    modes = modes or ["mean"]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise _unknown(name, f"the pooling {' and '.join(modes)}")
    return Pooling(modes[0], bool(config.get("include_prompt", True)))


def _read_dense(name: str, file: _File) -> Dense:
    config = file.known(DENSE_KEYS)
    library, _, activation = str(config.get("activation_function", "torch.nn.Tanh")).rpartition(".")
    if activation not in ACTIVATIONS or library.partition(".")[0] != "torch":
        raise _unknown(name, f"a dense layer with the activation {activation}")
    safe = file.path.with_name("model.safetensors")
    weights = safe if safe.is_file() else file.path.with_name("pytorch_model.bin")
    return Dense(weights, activation, bool(config.get("use_residual")), *_names(file, config))


def _read_normalise(_name: str, file: _File) -> Normalise:
    return Normalise(*_names(file, file.known(NAMED_KEYS)))


def _names(file: _File, config: Mapping[str, Any]) -> tuple[str, str]:
    """What a step is applied to, and what it makes: the same unless that is stated."""
    source = config.get("module_input_name", VECTOR)
    target = config.get("module_output_name", source)
    for key, value in (("module_input_name", source), ("module_output_name", target)):
        if value not in {TOKENS, VECTOR}:
            raise file.refusal(f"the name {value}", key)
    return source, target


STEPS: Mapping[str, Callable[[str, _File], Step]] = {
    "Pooling": _read_pooling,
    "Dense": _read_dense,
    "Normalize": _read_normalise,
}
"""Modules after the network, by the ends of their names."""


def _read(name: str, path: Path) -> _File:
    """The JSON of a file; empty where there is none."""
    if not path.is_file():
        return _File(name, path)
    try:
        return _File(name, path, parse_json(path.read_text()))
    except ValueError as error:
        raise _damaged(name, path, error) from error


def _damaged(name: str, path: Path, reason: object) -> BackboneError:
    return BackboneError(
        f"{name}: {path} is damaged: {reason}", "copy it again", parameter="backbone"
    )


def _unknown(name: str, what: str) -> BackboneError:
    return BackboneError(
        f"{name} states {what}, which is not computed here",
        f"remove {MODULES_FILE} from a copy of its folder for the mean over the tokens, or choose "
        "another encoder",
        parameter="backbone",
    )
