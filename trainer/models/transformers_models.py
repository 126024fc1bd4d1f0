"""Networks of the library transformers with a classifier."""

from typing import Any, Literal

from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.samples import InputSpec
from trainer.transformers_files import PREFIX, load_network


class TextTransformer(nn.Module):
    """An encoder of texts, one vector per text, dropout, and a linear classifier."""

    def __init__(
        self,
        encoder: Any,  # noqa: ANN401 - a class without types
        padding: int,
        num_classes: int,
        *,
        pooling: Literal["first", "mean"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.padding = padding
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(encoder.config.hidden_size, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Int64 tokens (samples, length) to logits (samples, num_classes), whatever the padding."""
        is_token = tokens != self.padding
        states = self.encoder(input_ids=tokens, attention_mask=is_token.long()).last_hidden_state
        if self.pooling == "first":
            pooled = states[:, 0]
        else:
            weights = is_token.unsqueeze(2).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self.classifier(self.dropout(pooled))


def transformers_model(
    name: str,
    spec: InputSpec,
    num_classes: int,
    *,
    pretrained: bool = True,
    pooling: Literal["first", "mean"] = "first",
    dropout: float = 0.1,
) -> nn.Module:
    """Builds a network of transformers with a classifier for the given number of classes.

    Its name is one on the Hugging Face hub, or a folder that `save_pretrained` wrote. Pooling
    "first" classifies the state of the first token, as in the paper of BERT; "mean" the mean over
    all tokens. Dropout is of that vector.
    """
    if pooling not in {"first", "mean"}:
        raise ConfigError(
            f"{PREFIX}{name}: pooling = {pooling!r} does not exist", 'choose "first" or "mean"'
        )
    encoder = load_network(name, pretrained=pretrained)
    if not isinstance(getattr(encoder.config, "hidden_size", None), int):
        raise ConfigError(f"{PREFIX}{name} is no encoder of texts: it has no hidden size")
    if spec.padding is None:
        raise ConfigError(f"{PREFIX}{name} takes the tokens of its own tokenizer")
    return TextTransformer(encoder, spec.padding, num_classes, pooling=pooling, dropout=dropout)
