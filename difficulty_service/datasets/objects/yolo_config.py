"""What `data.yaml`, or `obj.data` of darknet, says about a dataset of YOLO.

Only the keys that are used are read. The others are of any kind, such as the names of key points.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from difficulty_service.datasets.objects.files import read_or_reason, without_mark
from difficulty_service.datasets.storage import StoredPath

YAML_EXTENSIONS = (".yaml", ".yml")
USUAL_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
SPLITS = ("train", "val", "valid", "validation", "test")
DARKNET = ".data"

_MOST_BYTES = 1 << 20
_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class YoloConfig:
    """What a file says about a dataset; paths are as they are written there.

    Attributes:
        splits: Folders or lists of the images of each split.
        base: What the paths are relative to.
        names: Name of each class by its number; None where the file does not name them.
        names_file: File that names them, one a line.
        number: Number of classes; None where the file does not say it.
        has_keypoints: Whether lines end with points that are no outline.
    """

    place: StoredPath
    splits: Mapping[str, Sequence[str]]
    base: str = ""
    names: Mapping[int, str] | None = None
    names_file: str | None = None
    number: int | None = None
    has_keypoints: bool = False

    @property
    def is_darknet(self) -> bool:
        """Whether it is no YAML."""
        return self.place.name.endswith(DARKNET)


def read_config(place: StoredPath) -> YoloConfig | str | None:
    """What a YAML file says, the reason why that cannot be used, or None for any other file."""
    data = read_or_reason(place, _MOST_BYTES)
    if isinstance(data, str):
        return data if place.name in USUAL_NAMES else None
    try:
        # The nodes of a text are as many as it has values. Written out, aliases of a short text
        # can be a list of any size.
        root = yaml.compose(data, yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = str(error).partition("\n")[0] or type(error).__name__
        return f"is damaged: {problem}" if place.name in USUAL_NAMES else None
    if not isinstance(root, yaml.MappingNode):
        return None
    nodes = {key.value: node for key, node in root.value if isinstance(key, yaml.ScalarNode)}
    if not {"names", "nc"} & {*nodes}:
        return None
    try:
        return _of_nodes(place, nodes)
    except ValueError as error:
        return str(error)


def _of_nodes(place: StoredPath, nodes: Mapping[str, yaml.Node]) -> YoloConfig:
    names, names_file = _names(nodes.get("names"))
    entries = {name: _texts(nodes[name], name) for name in SPLITS if name in nodes}
    base = _texts(nodes["path"], "path") if "path" in nodes else []
    return YoloConfig(
        place,
        {name: paths for name, paths in entries.items() if paths},
        base[0] if base else "",
        names,
        names_file,
        _count(nodes.get("nc")),
        "kpt_shape" in nodes,
    )


def _is_empty(node: yaml.Node | None) -> bool:
    return node is None or node.tag == "tag:yaml.org,2002:null"


def _texts(node: yaml.Node, key: str) -> list[str]:
    """The text of a value, or those of a list of values."""
    if _is_empty(node):
        return []
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(each, yaml.ScalarNode) for each in nodes):
        raise ValueError(f"has under {key!r} neither a text nor a list of texts")
    return [each.value for each in nodes if each.value and not _is_empty(each)]


def _names(node: yaml.Node | None) -> tuple[dict[int, str] | None, str | None]:
    """Classes by their numbers, as they are written, or the file that has them."""
    if node is None or _is_empty(node):
        return None, None
    if isinstance(node, yaml.ScalarNode):
        return None, node.value
    pairs = node.value if isinstance(node, yaml.MappingNode) else enumerate(node.value)
    found = dict[int, str]()
    for key, value in pairs:
        number = key if isinstance(key, int) else _number(key)
        if number is None or not isinstance(value, yaml.ScalarNode):
            raise ValueError(
                "has classes that are neither a list of names nor names by their numbers"
            )
        found[number] = value.value
    return dict(sorted(found.items())), None


def _number(node: yaml.Node) -> int | None:
    is_number = isinstance(node, yaml.ScalarNode) and re.fullmatch(r"\d{1,9}", node.value)
    return int(node.value) if is_number else None


def _count(node: yaml.Node | None) -> int | None:
    number = None if node is None else _number(node)
    return number if number is not None and 0 < number <= _MOST_CLASSES else None


def read_darknet(place: StoredPath) -> YoloConfig | None:
    """What the `key = value` lines of a file such as `obj.data` say; None for any other file."""
    data = read_or_reason(place, _MOST_BYTES)
    if isinstance(data, str):
        return None
    pairs = [
        line.partition("=") for line in without_mark(data).decode(errors="replace").split("\n")
    ]
    values = {key.strip(): value.strip() for key, equals, value in pairs if equals}
    if not {"names", "train"} & {*values}:
        return None
    splits = {name: [values[name]] for name in SPLITS if values.get(name)}
    return YoloConfig(place, splits, names_file=values.get("names") or None)


def config_edits(
    text: str, classes: Mapping[int, str], added: Sequence[str]
) -> tuple[list[tuple[int, int, str]], list[str]]:
    """What adds classes to a YAML file and makes its paths relative to it, and what to know of it.

    Where it has no names, only their number is changed.
    """
    root = yaml.compose(text, yaml.SafeLoader)
    nodes = {key.value: node for key, node in root.value if isinstance(key, yaml.ScalarNode)}
    edits, warnings = list[tuple[int, int, str]](), list[str]()
    base = nodes.get("path")
    if base is not None and base.value not in {"", ".", "null", "~"}:
        edits.append((base.start_mark.index, base.end_mark.index, '""'))
        warnings.append(
            f"path in data.yaml was {base.value!r} and is empty now, so that other paths are from "
            "the folder of the file and not from that of the original dataset"
        )
    if not added:
        return edits, warnings
    first = max(classes, default=-1) + 1
    names = nodes.get("names")
    if isinstance(names, yaml.SequenceNode | yaml.MappingNode) and names.value:
        edits.append(_more_names(names, first, added))
    if (count := nodes.get("nc")) is not None:
        edits.append((count.start_mark.index, count.end_mark.index, str(first + len(added))))
    return edits, warnings


def _more_names(
    names: yaml.CollectionNode, first: int, added: Sequence[str]
) -> tuple[int, int, str]:
    is_list = isinstance(names, yaml.SequenceNode)
    quoted = [json.dumps(name, ensure_ascii=False) for name in added]
    items = quoted if is_list else [f"{first + place}: {each}" for place, each in enumerate(quoted)]
    last = names.value[-1] if is_list else names.value[-1][1]
    between = f"\n{' ' * names.start_mark.column}{'- ' if is_list else ''}"
    new = "".join((", " if names.flow_style else between) + item for item in items)
    return last.end_mark.index, last.end_mark.index, new
