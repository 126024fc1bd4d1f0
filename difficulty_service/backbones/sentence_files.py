"""What a model of texts states about its vectors, in files of Sentence Transformers beside it.

`modules.json` lists the steps: the network, how its tokens are pooled, dense layers, and scaling to
unit length. `sentence_bert_config.json` has the length of a text and
`config_sentence_transformers.json` the prompt in front of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import BackboneError
from difficulty_service.base.json_text import parse_json

MODULES_FILE = "modules.json"
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
ACTIVATIONS = ("Identity", "Tanh")


@dataclass(frozen=True)
class DenseLayer:
    """A dense layer after the pooling.

    Attributes:
        weights: File of its weights.
        activation: `Identity` or `Tanh`, what follows the linear map.
    """

    weights: Path
    activation: str


@dataclass(frozen=True)
class SentenceSettings:
    """How the last hidden states of a text become its vector.

    Attributes:
        pooling: `mean` over the tokens, `cls` for the first one or `lasttoken`.
        prompt: Text in front of every text.
        pools_prompt: Whether the mean is also over the tokens of the prompt.
        dense: Layers through which the pooled vector goes, in order.
        normalise: Whether the vector is scaled to unit length at the end.
        lowercase: Whether texts are changed to lower case first.
        max_tokens: Most tokens of a text; None where the model does not say.
    """

    pooling: str = "mean"
    prompt: str = ""
    pools_prompt: bool = True
    dense: tuple[DenseLayer, ...] = ()
    normalise: bool = False
    lowercase: bool = False
    max_tokens: int | None = None

    def describe(self) -> dict[str, object]:
        """JSON values for provenance: the pooling, and what differs from a plain mean."""
        stated: dict[str, object] = {
            "prompt": self.prompt,
            "pools_prompt": self.pools_prompt,
            "dense": [layer.activation for layer in self.dense],
            "normalise": self.normalise,
            "lowercase": self.lowercase,
        }
        usual = {
            "prompt": "",
            "pools_prompt": True,
            "dense": [],
            "normalise": False,
            "lowercase": False,
        }
        return {"pooling": self.pooling} | {
            name: value for name, value in stated.items() if value != usual[name]
        }


@dataclass
class _Steps:
    """What the modules state, collected in their order."""

    pooling: dict[str, Any] = field(default_factory=dict)
    dense: list[DenseLayer] = field(default_factory=list)
    normalise: bool = False


def read_sentence_settings(name: str, folder: Path) -> SentenceSettings:
    """What the files beside a model state; a plain mean where there is no `modules.json`.

    Raises:
        BackboneError: A file cannot be read, or states something that is not computed here.
    """
    network = _read(name, folder / "sentence_bert_config.json")
    texts = _read(name, folder / "config_sentence_transformers.json")
    steps = _read_steps(name, folder)
    prompt = (texts.get("prompts") or {}).get(texts.get("default_prompt_name"))
    return SentenceSettings(
        pooling=_pooling_of(name, steps.pooling),
        prompt=prompt or "",
        pools_prompt=bool(steps.pooling.get("include_prompt", True)),
        dense=tuple(steps.dense),
        normalise=steps.normalise,
        lowercase=bool(network.get("do_lower_case")),
        max_tokens=network.get("max_seq_length"),
    )


def _read_steps(name: str, folder: Path) -> _Steps:
    steps = _Steps()
    modules: Any = _read(name, folder / MODULES_FILE) or []
    for module in modules:
        kind, place = str(module["type"]).rpartition(".")[2], folder / str(module["path"])
        if kind == "Pooling":
            steps.pooling = _read(name, place / "config.json")
        elif kind == "Dense":
            config = _read(name, place / "config.json")
            activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
            if activation not in ACTIVATIONS:
                raise _unknown(name, f"a dense layer with the activation {activation}")
            safe = place / "model.safetensors"
            weights = safe if safe.is_file() else place / "pytorch_model.bin"
            steps.dense.append(DenseLayer(weights, activation))
        elif kind == "Normalize":
            steps.normalise = True
        elif kind != "Transformer":
            raise _unknown(name, f"the module {kind}")
        if steps.normalise and kind == "Dense":
            raise _unknown(name, "a dense layer after the scaling to unit length")
    return steps


def _pooling_of(name: str, config: Mapping[str, Any]) -> str:
    """The one way of pooling; the mean where nothing is stated."""
    if not config:
        return "mean"
    stated = config.get("pooling_mode")
    modes = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag)]
    if isinstance(stated, str):
        modes = [stated]
    elif isinstance(stated, list):
        modes = [str(mode) for mode in stated]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise _unknown(name, f"the pooling {' and '.join(modes) or 'of nothing'}")
    return modes[0]


def _read(name: str, path: Path) -> dict[str, Any]:
    """The JSON of a file; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = parse_json(path.read_text())
    except ValueError as error:
        raise BackboneError(
            f"{name}: {path} is damaged: {error}", "copy it again", parameter="backbone"
        ) from error
    return content


def _unknown(name: str, what: str) -> BackboneError:
    return BackboneError(
        f"{name} states {what}, which is not computed here",
        f"remove {MODULES_FILE} from a copy of its folder for the mean over the tokens, or choose "
        "another encoder",
        parameter="backbone",
    )
