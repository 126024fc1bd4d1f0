"""The columns of a table that hold images, labels, class names, ids and splits."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.label_lists import is_list
from difficulty_service.datasets.labels import (
    CLEANED,
    LABEL_NAMES,
    Describe,
    find_usual,
    fold,
    is_text,
    label_like,
)
from difficulty_service.datasets.sample import DatasetOptions

PATH_NAMES = ("path", "image_path", "file", "file_path", "filename", "file_name")
"""Names of columns whose paths become the sample ids if they are unique, by priority."""

IMAGE_IDS = (
    "image_name", "imagename", "img_name", "img_path", "filepath", "image_file", "image_filename",
    "image_id", "imageid", "img_id", "image index", "image_index", "id_code", "isic_id",
    "source-ref",
)  # fmt: skip
"""Names of columns that are those of images where there is no other, mostly without endings."""

IMAGE_NAMES = (
    *("image", "img", "image_bytes", "bytes", "jpg", "png", "webp", *PATH_NAMES),
    *IMAGE_IDS,
)
"""Default names of image columns, by priority; columns of bytes come before paths."""

TEXT_NAMES = ("text", "sentence", "document", "content")
"""Usual names of columns of texts, by priority."""


_ARRAYS = ", or pass arrays in Python to `difficulty_service.score_dataset(images, labels)`"


def or_texts(names: Sequence[str]) -> tuple[str | Setting, ...]:
    """The end of a remedy for a table without images, where a column is evidently of texts."""
    found = find_usual(TEXT_NAMES, names)[:1]
    return (", or, for texts, pass ", Setting("text_column", found[0])) if found else ()


@dataclass(frozen=True)
class TextColumns:
    """The columns that are read as they are written, though they look like numbers or dates.

    They are those that are named, and those that may hold labels or names of classes.
    """

    named: Collection[str | None]

    def __contains__(self, name: object) -> bool:
        """Whether a column is one of them."""
        if not isinstance(name, str):
            return False
        may_be_label = label_like([name]) or name.endswith("_name")
        return name in self.named or bool(may_be_label) or fold(name) in IMAGE_IDS


class EveryColumn:
    """All columns, where a table holds nothing but ids and labels."""

    def __contains__(self, name: object) -> bool:
        """Whether a column is one of them."""
        return isinstance(name, str)


@dataclass(frozen=True)
class TableColumns:
    """The names of the columns of a dataset.

    Attributes:
        image: Column with encoded bytes, structs `{bytes, path}` or paths; or with texts.
        label: Column with the labels; None where they are ignored.
        other_labels: Columns that look like labels too, where the label column was guessed.
        one_hot: Columns of 0 and 1 in place of a label column, of which one is 1 in each row.
    """

    image: str
    label: str | None
    label_name: str | None
    sample_id: str | None
    split: str | None
    other_labels: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()

    def of_labels(self) -> list[str]:
        """All columns except the images, without duplicates."""
        names = (self.label, self.label_name, self.sample_id, self.split, *self.one_hot)
        return list(dict.fromkeys(name for name in names if name is not None))


def choose_columns(
    schema: pa.Schema,
    options: DatasetOptions,
    source: str,
    read: Callable[[list[str]], pa.Table],
) -> TableColumns:
    """Finds the columns by the options, or by their default names.

    Args:
        read: Reads all rows of some columns, looked at where none is called as labels are.
    """
    _refuse_duplicates(schema, options, source)
    image = _text_column(schema, options, source) or _image_column(schema, options, source)
    labels: list[str] = []
    one_hot: tuple[str, ...] = ()
    if not options.unlabelled:
        labels = _label_columns(schema, options.label_column, source)
        one_hot = () if labels else _one_hot_columns(schema, image, source, read)
    label = labels[0] if labels else None
    return TableColumns(
        image=image,
        label=label,
        label_name=None
        if label is None
        else label_name_column(schema, label, options.label_column),
        sample_id=options.id_column and _require(schema, options.id_column, ("id", source)),
        split=options.split and _require(schema, "split", ("split", source)),
        other_labels=tuple(labels[1:]),
        one_hot=one_hot,
    )


def columns_asked_for(options: DatasetOptions) -> tuple[tuple[str, str], ...]:
    """The column of images or texts that options name, for the fingerprint of a dataset.

    Another column of the same rows holds other samples with the same ids, labels and files.
    """
    names = {"image_column": options.image_column, "text_column": options.text_column}
    return tuple((option, name) for option, name in names.items() if name is not None)


def _image_column(schema: pa.Schema, options: DatasetOptions, source: str) -> str:
    present = find_usual(IMAGE_NAMES, schema.names)
    usual = [name for name in present if holds_bytes(schema.field(name).type)]
    usual += [name for name in present if holds_text(schema.field(name).type)]
    usual += [name for name in present if is_list(schema.field(name).type)]  # which is refused
    if options.image_column is None and not usual:
        _refuse_missing_header(schema, source)
    image = _find(schema, options.image_column, usual, ("image", source))
    kind = schema.field(image).type
    if not (holds_bytes(kind) or holds_text(kind)):
        raise DatasetError(
            f"column {image!r} of {source} is of type {kind}, but images are encoded bytes, "
            "a struct {bytes, path}, or paths",
            "name another column as ",
            Setting("image_column"),
            *([_ARRAYS] if is_list(kind) else []),
            parameter="image_column",
        )
    return image


def _refuse_missing_header(schema: pa.Schema, source: str) -> None:
    first = next(
        (name for name in schema.names if has_image_extension((name.split() or [""])[0])), None
    )
    if first is not None:
        raise DatasetError(
            f"the first line of {source} has no names of columns, but the path {first!r}",
            "write one above it, such as `path` and `label` with what is between all columns",
        )


def _text_column(schema: pa.Schema, options: DatasetOptions, source: str) -> str | None:
    """The column with the texts; None where the samples are images."""
    if options.text_column is None:
        return None
    if options.image_column is not None:
        raise DatasetError.leave_out("image_column does not apply to texts", "image_column")
    name = _require(schema, options.text_column, ("text", source))
    if not holds_text(schema.field(name).type):
        raise DatasetError(
            f"column {name!r} of {source} is of type {schema.field(name).type}, not of text",
            "name another column as ",
            Setting("text_column"),
            parameter="text_column",
        )
    return name


def _refuse_duplicates(schema: pa.Schema, options: DatasetOptions, source: str) -> None:
    """Refuses two columns of one name where that may be a column to use."""
    twice = [name for name, number in Counter(schema.names).items() if number > 1]
    columns = (options.image_column, options.text_column)
    chosen = (*columns, options.label_column, options.id_column)
    used = {*chosen, *IMAGE_NAMES, *label_like(twice), "split"}
    for name in twice:
        if name in used or name.endswith("_name"):
            raise DatasetError(f"{source} has two columns {name!r}", "rename or remove one of them")


def _label_columns(schema: pa.Schema, chosen: str | None, source: str) -> list[str]:
    """The label column, followed by the others that look like one where none is chosen."""
    if chosen is not None:
        return [_require(schema, chosen, ("label", source))]
    like = [name for name in label_like(schema.names) if _may_hold_labels(schema.field(name).type)]
    if not like and (usual := find_usual(LABEL_NAMES, schema.names)):
        return usual[:1]  # whose type an error names
    if not like:
        return []
    if CLEANED.issubset(schema.names):
        return like[:1]
    if fold(like[0]) in LABEL_NAMES or len(like) == 1:
        return like
    raise DatasetError(
        f"{source} has several columns that may be the labels: {', '.join(map(repr, like))}",
        "name one of them as ",
        Setting("label_column"),
        parameter="label_column",
    )


def _may_hold_labels(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return is_text(data_type) or is_number(data_type) or pa.types.is_null(data_type)


def path_columns(schema: pa.Schema, image: str) -> list[str]:
    """The columns whose paths may serve as sample ids: the image column first, if it has paths."""
    return [
        name
        for name in dict.fromkeys((image, *find_usual(PATH_NAMES, schema.names)))
        if name in schema.names
        and (
            _has_field(schema.field(name).type, "path")
            or (_is_path(name, image) and holds_text(schema.field(name).type))
        )
    ]


def _is_path(name: str, image: str) -> bool:
    return fold(name) in PATH_NAMES or (name == image and fold(name) in IMAGE_IDS)


def has_paths(data_type: pa.DataType) -> bool:
    """Whether cells are structs with a path, as `datasets` writes images."""
    return _has_field(data_type, "path")


def are_ids(paths: pa.ChunkedArray) -> bool:
    """Whether paths are present in every row and differ from each other."""
    if paths.null_count or not pc.all(pc.not_equal(paths, "")).as_py():
        return False
    return int(pc.count_distinct(paths).as_py()) == len(paths)


def label_name_column(schema: pa.Schema, label: str, label_column: str | None) -> str | None:
    """The column with the class names: `label_name`, or `<column>_name` for a chosen column.

    In a table with several label columns, `label_name` belongs only to the default one.
    """
    usual = label_column is None or label_column in LABEL_NAMES[:1]
    name = "label_name" if usual else f"{label}_name"
    return name if name in schema.names and holds_text(schema.field(name).type) else None


def _find(
    schema: pa.Schema, chosen: str | None, usual: Sequence[str], what: tuple[str, str]
) -> str:
    if chosen is not None:
        return _require(schema, chosen, what)
    for name in find_usual(usual, schema.names):
        return name
    role, source = what
    raise DatasetError(
        f"no {role} column found in {source}, which has {schema.names}",
        "name it as ",
        Setting(f"{role}_column"),
        *(or_texts(schema.names) if role == "image" else ()),
        parameter=f"{role}_column",
    )


def _one_hot_columns(
    schema: pa.Schema, image: str, source: str, read: Callable[[list[str]], pa.Table]
) -> tuple[str, ...]:
    """The columns of 0 and 1 of which exactly one is 1 in each row.

    Raises:
        DatasetError: There are none, or more or fewer are 1 in a row.
    """
    numbers = [field.name for field in schema if field.name != image and is_number(field.type)]
    cells = read(numbers) if numbers else pa.table({})
    remedy: tuple[str | Setting, ...] = ()
    names = [name for name in numbers if _is_binary(cells.column(name))]
    if len(names) > 1:
        ones = sum(cells.column(name).cast(pa.int64()).to_numpy() for name in names)
        if (ones == 1).all():
            return tuple(names)
        row = int((ones != 1).argmax())
        listed = ", ".join(map(repr, names))
        what = f"; {listed} hold 0 and 1, and {ones[row]} of them are 1 in row {row}"
        remedy = (", or, where these are tags, judge them by ", Setting("tags", ",".join(names)))
    else:
        what = ""
    raise DatasetError(
        f"no label column found in {source}, which has {schema.names}{what}",
        "name it as ",
        Setting("label_column"),
        *remedy,
        ", or score without labels by ",
        Setting("unlabelled", value=True),
        parameter="label_column",
    )


def _is_binary(column: pa.ChunkedArray) -> bool:
    """Whether all cells of a column of numbers are 0 or 1."""
    known = pc.unique(column).to_pylist()
    return 0 < len(known) <= 2 and all(each in (0, 1) for each in known)  # noqa: PLR2004


def one_hot_labels(texts: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """The name of the column that is 1 in each row. Shape (rows,)."""
    cells = np.stack([texts.column(name).cast(pa.int64()).to_numpy() for name in names])
    return pa.chunked_array([pa.array(names).take(pa.array(cells.argmax(axis=0)))])


def one_hot_note(source: str, names: Sequence[str]) -> str:
    """What was assumed of columns that are one-hot."""
    return (
        f"the label in {source} is the name of the column that is 1, of the {len(names)} from "
        f"{names[0]!r} to {names[-1]!r}"
    )


def _require(schema: pa.Schema, name: str, what: tuple[str, str]) -> str:
    role, source = what
    if name not in schema.names:
        alike = [each for each in schema.names if each.strip() == name.strip()]
        if len(alike) == 1:  # a blank that nobody sees in a header
            return alike[0]
        parameter = "split" if role == "split" else f"{role}_column"
        raise DatasetError(
            f"no column {name!r} in {source}, which has {schema.names}",
            "leave out " if role == "split" else "name one of these as ",
            Setting(parameter),
            parameter=parameter,
        )
    return name


def is_number(data_type: pa.DataType) -> bool:
    """Whether cells are integers, floating-point numbers or booleans."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(is_kind(data_type) for is_kind in kinds)


def holds_bytes(data_type: pa.DataType) -> bool:
    """Whether cells are binary, or a struct with `bytes` or `path`."""
    if pa.types.is_struct(data_type):
        return _has_field(data_type, "bytes") or _has_field(data_type, "path")
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(is_kind(data_type) for is_kind in kinds)


def _has_field(data_type: pa.DataType, name: str) -> bool:
    return pa.types.is_struct(data_type) and any(field.name == name for field in data_type)


def holds_text(data_type: pa.DataType) -> bool:
    """Whether cells are text, possibly dictionary-encoded."""
    return is_text(data_type.value_type if pa.types.is_dictionary(data_type) else data_type)


def sample_ids_of(
    texts: pa.Table, columns: TableColumns, row_names: Iterable[str], describe: Describe
) -> list[str]:
    """The ids of the rows: the text of the id column, or `file#row`."""
    if columns.sample_id is None:
        return list(row_names)
    ids = texts.column(columns.sample_id)
    if ids.null_count:
        first = int(pc.index(pc.is_null(ids), value=True).as_py())
        raise DatasetError(
            f"id column {columns.sample_id!r} is null {ids.null_count} times, first at "
            f"{describe(first)}",
            "every sample needs an id",
            parameter="id_column",
        )
    try:
        texts_of_ids: list[str] = ids.cast(pa.string()).to_pylist()
    except pa.ArrowException as error:
        raise DatasetError(
            f"id column {columns.sample_id!r} of type {ids.type} cannot become text: {error}",
            parameter="id_column",
        ) from error
    return texts_of_ids
