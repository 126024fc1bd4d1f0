"""Writes difficulty_service/interface/keywords.py, the keywords of Python, from the options.

Run: python docs/keywords.py
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from difficulty_service.settings.machine import (
    DeviceOptions,
    MachineOptions,
    NetworkOptions,
    RunOptions,
)
from difficulty_service.settings.option_types import InPython
from difficulty_service.settings.options import (
    ColumnOptions,
    EncodingOptions,
    FittingOptions,
    LabelOptions,
    ListingOptions,
    Options,
    ScorerOptions,
    TagOptions,
)

MODULE = Path(__file__).parents[1] / "difficulty_service" / "interface" / "keywords.py"

START = '''"""The options that a caller may pass by name, once more for type checkers.

Written by `python docs/keywords.py` from the models, which check the values but cannot be read by
type checkers; a test holds it against them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict
'''

WIDTH = 100


@dataclass(frozen=True)
class Keywords:
    """Options that some functions of Python take.

    Attributes:
        name: Name of the class.
        sentence: What the options are.
        options: Models whose options these are, in this order.
        bases: Names of the classes whose options are among them, too.
        without: Options of the models that are no keywords.
    """

    name: str
    sentence: str
    options: Sequence[type[Options]]
    bases: Sequence[str] = ()
    without: Sequence[str] = ()


CLASSES = (
    Keywords("DeviceChoices", "Options of where and how a backbone runs.", [DeviceOptions]),
    Keywords(
        "EncoderOptions",
        "Options of a backbone and of how images are read for it.",
        [NetworkOptions, EncodingOptions, RunOptions],
        ["DeviceChoices"],
        [
            *("backbone", "corrupt", "augment_runs", "seed", "on_error"),
            *("resume", "max_download_bytes", "engine", "ray_address", "ray_actors"),
        ],
    ),
    Keywords(
        "DatasetChoices", "Options of how a dataset is read.", [ListingOptions], (), ["shard_size"]
    ),
    Keywords(
        "ReadingChoices",
        "Options of a backbone and of a dataset.",
        [EncodingOptions],
        ["EncoderOptions", "DatasetChoices"],
    ),
    Keywords(
        "ImageOptions",
        "Options of `score_dataset`: those of a backbone, of the dataset and of the statistics.",
        [MachineOptions, FittingOptions, ScorerOptions, LabelOptions, TagOptions],
        ["ReadingChoices"],
    ),
    Keywords(
        "ExplainOptions",
        "Options of `explain`: those of a backbone, and of the dataset as for `score_dataset`.",
        [ColumnOptions],
        ["EncoderOptions"],
        ["format"],
    ),
)


def module() -> str:
    """The whole module."""
    known: dict[str, Mapping[str, FieldInfo]] = {}
    classes = [START]
    for each in CLASSES:
        inherited = {name: field for base in each.bases for name, field in known[base].items()}
        own = {
            name: field
            for model in each.options
            for name, field in model.model_fields.items()
            if name not in {*inherited, *each.without}
        }
        known[each.name] = inherited | own
        classes.append(_class(each, own))
    return "\n\n".join(classes)


def _class(keywords: Keywords, fields: Mapping[str, FieldInfo]) -> str:
    """The text of a class."""
    bases = ", ".join(keywords.bases or ["TypedDict"])
    sentences = [
        textwrap.fill(
            f"{name}: {_sentence(field)}",
            WIDTH,
            initial_indent=" " * 8,
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, field in fields.items()
    ]
    annotations = [f"    {name}: {_annotation(field)}" for name, field in fields.items()]
    lines = [
        f"class {keywords.name}({bases}, total=False):",
        f'    """{keywords.sentence}',
        "",
        "    Attributes:",
        *sentences,
        '    """',
        "",
        *annotations,
        "",
    ]
    return "\n".join(lines)


def _in_python(field: FieldInfo) -> InPython:
    return next((each for each in field.metadata if isinstance(each, InPython)), InPython())


def _sentence(field: FieldInfo) -> str:
    """What an option does, with its default; a sentence for Python alone has that already."""
    sentence = _in_python(field).sentence
    if sentence:
        return sentence
    default = field.default
    if isinstance(default, tuple):
        default = ",".join(default)
    if default is not None:
        shown = f"{default:,}" if type(default) is int else f"`{default}`"
        sentence = f" Default: {shown}."
    return f"{field.description}{sentence}"


def _annotation(field: FieldInfo) -> str:
    return _in_python(field).type or _text(field.annotation)


def _text(annotation: Any) -> str:  # noqa: ANN401 - whatever a type may be
    """A type as it is written, without what its values are checked by."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _text(arguments[0])
    if origin in {Union, UnionType}:
        return " | ".join(map(_text, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(_quoted, arguments))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_text, arguments))}]"
    return "None" if annotation is NoneType else str(annotation.__name__)


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    MODULE.write_text(module())
