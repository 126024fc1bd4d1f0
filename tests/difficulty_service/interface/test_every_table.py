"""Every kind of table that people hold, in every public function that takes one."""

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

import difficulty_service as ds
import trainer
from tests.small_network import SMALL

ROWS, DIM = 60, 4
LABELS = [("cat", "dog", "rat")[row % 3] for row in range(ROWS)]
IDS = [f"{row:02}.png" for row in range(ROWS)]
GENERATOR = np.random.default_rng(0)
FEATURES = GENERATOR.standard_normal((ROWS, DIM)) + 3 * np.eye(3, DIM)[np.arange(ROWS) % 3]

Columns = Mapping[str, list[Any]]


class Stream:
    """A table or column of a library that nobody here knows."""

    def __init__(self, held: Any) -> None:  # noqa: ANN401
        self._held = held

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._held.__arrow_c_stream__(requested_schema)


def polars() -> Any:  # noqa: ANN401
    return pytest.importorskip("polars")


def duckdb() -> Any:  # noqa: ANN401
    return pytest.importorskip("duckdb")


def is_text(cells: list[Any]) -> bool:
    return isinstance(cells[0], str)


def arrow(columns: Columns, convert: Callable[[pa.Array], pa.Array] = lambda column: column) -> Any:  # noqa: ANN401
    return pa.table({name: convert(pa.array(cells)) for name, cells in columns.items()})


def as_views(column: pa.Array) -> pa.Array:
    """A column as polars hands it out."""
    if pa.types.is_string(column.type):
        return column.cast(pa.string_view())
    if pa.types.is_binary(column.type):
        return column.cast(pa.binary_view())
    if pa.types.is_list(column.type):
        value = pa.string_view() if pa.types.is_string(column.type.value_type) else pa.float64()
        return pa.array(column.to_pylist(), pa.list_view(value))
    return column


def as_dictionaries(column: pa.Array) -> pa.Array:
    """A column as polars hands out categories, and lists in the middle of others."""
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        views = encoded.dictionary.cast(pa.string_view())
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.uint32()), views)
    if pa.types.is_list(column.type) and pa.types.is_floating(column.type.value_type):
        fixed = pa.FixedSizeListArray.from_arrays(column.flatten(), len(column[0]))
        return pa.concat_arrays([fixed, fixed])[len(column) :]
    return column


def as_large(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_list(column.type):
        return column.cast(pa.large_list(column.type.value_type))
    return column


def polars_categories(columns: Columns) -> Any:  # noqa: ANN401
    pl = polars()
    frame = pl.DataFrame(dict(columns))
    texts = [name for name, cells in columns.items() if is_text(cells)]
    return frame.with_columns(pl.col(texts).cast(pl.Categorical)) if texts else frame


def polars_enums(columns: Columns) -> Any:  # noqa: ANN401
    """Enums, and arrays of a fixed length."""
    pl = polars()
    frame = pl.DataFrame(dict(columns))
    for name, cells in columns.items():
        if is_text(cells):
            frame = frame.with_columns(pl.col(name).cast(pl.Enum(sorted({*cells}))))
        if isinstance(cells[0], list) and isinstance(cells[0][0], float):
            frame = frame.with_columns(pl.col(name).cast(pl.Array(pl.Float64, len(cells[0]))))
    return frame


def duckdb_relation(columns: Columns) -> Any:  # noqa: ANN401
    held = arrow(columns)
    return duckdb().from_arrow(held)


TABLES: dict[str, Callable[[Columns], Any]] = {
    "a dict of lists": dict,
    "a dict of arrays": lambda columns: {
        name: np.array(cells, object if isinstance(cells[0], bytes) else None)
        if name != "tags"
        else cells
        for name, cells in columns.items()
    },
    "a DataFrame of pandas": lambda columns: pd.DataFrame(dict(columns)),
    "a DataFrame of arrays": lambda columns: pd.DataFrame(
        {
            name: [np.array(cell) for cell in cells] if isinstance(cells[0], list) else cells
            for name, cells in columns.items()
        }
    ),
    "a DataFrame of categories": lambda columns: pd.DataFrame(
        {
            name: pd.Categorical(cells) if is_text(cells) else cells
            for name, cells in columns.items()
        }
    ),
    "a DataFrame of Arrow's types": lambda columns: arrow(columns).to_pandas(
        types_mapper=pd.ArrowDtype
    ),
    "an Arrow table": arrow,
    "a record batch": lambda columns: arrow(columns).to_batches()[0],
    "an Arrow table in chunks": lambda columns: pa.concat_tables(
        [arrow(columns)[:7], arrow(columns)[7:]]
    ),
    "large types": lambda columns: arrow(columns, as_large),
    "views": lambda columns: arrow(columns, as_views),
    "dictionaries": lambda columns: arrow(columns, as_dictionaries),
    "a stream of views": lambda columns: Stream(arrow(columns, as_views)),
    "a Dataset of Hugging Face": lambda columns: datasets.Dataset.from_dict(dict(columns)),
    "a DataFrame of polars": lambda columns: polars().DataFrame(dict(columns)),
    "categories of polars": polars_categories,
    "enums and arrays of polars": polars_enums,
    "a relation of DuckDB": duckdb_relation,
}


@pytest.fixture(params=TABLES)
def hold(request: pytest.FixtureRequest) -> Callable[[Columns], Any]:
    """Makes a table of one kind."""
    return TABLES[request.param]


@pytest.fixture(scope="module")
def expected() -> ds.Scores:
    return ds.score(FEATURES, LABELS, ids=IDS)


def column_of(table: Any, name: str) -> Any:  # noqa: ANN401
    """A column as the library of the table calls it, or a table of one where it has no columns."""
    if isinstance(table, Stream):
        return Stream(table._held[name])
    return table[name]


def same_scores(scores: ds.Scores, expected: ds.Scores) -> bool:
    return (
        scores["sample_id"].to_pylist() == expected["sample_id"].to_pylist()
        and scores["label_name"].to_pylist() == expected["label_name"].to_pylist()
        and np.array_equal(scores.rmd, expected.rmd)
    )


def test_a_table_is_joined(hold: Callable[[Columns], Any], expected: ds.Scores) -> None:
    cameras = [f"camera {row % 4}" for row in range(ROWS)]
    table = hold({"sample_id": IDS[::-1], "camera": cameras[::-1], "place": list(range(ROWS))})

    joined = expected.join(table)

    assert joined.camera.tolist() == cameras
    assert joined.place.tolist() == list(range(ROWS))[::-1]


def test_a_column_of_numbers_and_text_is_features_labels_and_ids(
    hold: Callable[[Columns], Any], expected: ds.Scores
) -> None:
    table = hold({"vector": FEATURES.tolist(), "label": LABELS, "id": IDS})

    scores = ds.score(
        column_of(table, "vector"), column_of(table, "label"), ids=column_of(table, "id")
    )

    assert same_scores(scores, expected)


@pytest.mark.parametrize("wide", [False, True])
def test_a_table_of_numbers_or_of_vectors_is_features(
    hold: Callable[[Columns], Any], expected: ds.Scores, *, wide: bool
) -> None:
    columns = {f"x{place}": FEATURES[:, place].tolist() for place in range(DIM)}
    table = hold(columns if wide else {"vector": FEATURES.tolist()})

    assert same_scores(ds.score(table, LABELS, ids=IDS), expected)


MARKED = {"sample_id": IDS[:3], "mark": ["keep", "relabel", "drop"], "label": ["", "rat", ""]}


def test_marks_are_applied(hold: Callable[[Columns], Any]) -> None:
    scores = ds.score(FEATURES, LABELS, ids=IDS, marks=hold(MARKED))

    assert scores["sample_id"].to_pylist() == [*IDS[:2], *IDS[3:]]
    assert scores["label_name"].to_pylist()[:2] == ["cat", "rat"]
    assert scores["mark"].to_pylist()[:3] == ["keep", "relabel", None]


@pytest.mark.analysis("annotators")
@pytest.mark.parametrize("wide", [False, True])
def test_labels_of_annotators_are_read(
    hold: Callable[[Columns], Any], expected: ds.Scores, *, wide: bool
) -> None:
    ben = ["rat"] * 9 + LABELS[9:]
    table = hold(
        {"sample_id": IDS, "Ann": LABELS, "Ben": ben}
        if wide
        else {
            "sample_id": IDS * 2,
            "annotator": ["Ann"] * ROWS + ["Ben"] * ROWS,
            "label": LABELS + ben,
        }
    )

    report = ds.annotators(expected, table, marks=hold(MARKED))

    assert report.annotators["annotator"].to_pylist() == ["Ann", "Ben"]
    assert report.annotators["labels"].to_pylist() == [ROWS, ROWS]
    assert report.samples["sample_id"].to_pylist() == IDS


@pytest.mark.analysis("leaks", "versions", "selection")
def test_sets_of_samples_are_compared_and_chosen_from(hold: Callable[[Columns], Any]) -> None:
    table = hold({"vector": FEATURES.tolist(), "label": LABELS, "id": IDS})
    held = tuple(column_of(table, name) for name in ("vector", "label", "id"))
    arrays = (FEATURES[:54], LABELS[:54], IDS[:54])

    found = ds.leaks(arrays, held, near_duplicates=None)
    changes = ds.diff(arrays, held, permutations=0)
    with pytest.warns(UserWarning, match="54 samples of pool are left out"):
        chosen = ds.select(
            held, 2, labelled=arrays, chosen=column_of(hold({"id": IDS[56:58]}), "id")
        )

    assert len(found.pairs) == 54
    assert changes.counts["added"] == 6
    assert {*chosen.sample_ids} < {*IDS[54:56], *IDS[58:]}


@pytest.mark.analysis("tags")
def test_tags_are_read(hold: Callable[[Columns], Any]) -> None:
    tags = [["all", label] if row % 2 else [label] for row, label in enumerate(LABELS)]
    table = hold({"vector": FEATURES.tolist(), "tags": tags})
    expected = ds.tags(FEATURES, tags)

    found = ds.tags(column_of(table, "vector"), column_of(table, "tags"))

    assert found.tags == expected.tags
    assert found.decisions["p_wrong"] == expected.decisions["p_wrong"]


@pytest.mark.parametrize("wide", [False, True])
def test_an_estimator_is_fitted(hold: Callable[[Columns], Any], *, wide: bool) -> None:
    columns = {f"x{place}": FEATURES[:, place].tolist() for place in range(DIM)}
    table = hold(columns if wide else {"vector": FEATURES.tolist()})
    labels = column_of(hold({"label": LABELS}), "label")
    expected = ds.RelativeMahalanobis().fit(FEATURES, LABELS)

    found = ds.RelativeMahalanobis().fit(table, labels)

    assert found.classes_.tolist() == ["cat", "dog", "rat"]
    np.testing.assert_array_equal(
        found.score_samples(table, labels), expected.score_samples(FEATURES, LABELS)
    )


def pictures() -> Iterator[bytes]:
    for row in range(ROWS):
        file = io.BytesIO()
        pixels = np.random.default_rng(row).integers(0, 80 * (1 + row % 3), (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        yield file.getvalue()


def test_a_table_of_images_is_scored(hold: Callable[[Columns], Any]) -> None:
    table = hold({"image": [*pictures()], "label": LABELS, "id": IDS})

    with pytest.warns(UserWarning, match="prefer the column rmd_loo"):
        scores = ds.score_dataset(
            table,
            id_column="id",
            backbone=SMALL,
            shrinkage="oas",
            progress=False,
            resume=False,
            marks=hold(MARKED),
        )
    seen = ds.preview(table, id_column="id")

    assert scores["sample_id"].to_pylist() == [*IDS[:2], *IDS[3:]]
    assert scores["label_name"].to_pylist()[:3] == ["cat", "rat", "cat"]
    assert seen.num_samples == ROWS


@pytest.mark.analysis("backbones")
def test_images_and_labels_in_columns_are_scored(hold: Callable[[Columns], Any]) -> None:
    table = hold({"image": [*pictures()], "label": LABELS})

    found = ds.try_backbones(
        column_of(table, "image"),
        column_of(table, "label"),
        backbones=[SMALL],
        sample=40,
        progress=False,
    )

    assert found.tried[0].name == SMALL


def test_a_classifier_is_trained_on_columns_and_weights_are_read_of_them(
    hold: Callable[[Columns], Any], expected: ds.Scores, tmp_path: Path
) -> None:
    table = hold({"vector": FEATURES.tolist(), "label": LABELS, "id": IDS})
    held = tuple(column_of(table, name) for name in ("vector", "label", "id"))
    if isinstance(held[0], list):
        held = (np.array(held[0]), *held[1:])

    run = trainer.train(
        {"training": {"epochs": 1}},
        model=lambda num_classes: torch.nn.Linear(DIM, num_classes),
        train=held,
        validation=held[:2],
        out=tmp_path / "run",
    )
    weights = trainer.read_weights(expected, held[2])

    assert run.metrics is not None
    assert torch.equal(weights, trainer.read_weights(expected, IDS))


def test_a_row_without_a_vector_is_left_out_of_any_table() -> None:
    vectors = [*FEATURES[:-1].tolist(), None]
    held = [
        pd.Series([None if each is None else np.array(each) for each in vectors]),
        pa.array(vectors),
        pa.array(vectors, pa.large_list_view(pa.float64())),
    ]

    for features in held:
        with pytest.warns(UserWarning, match="1 of 60"):
            scores = ds.score(features, LABELS)

        assert scores["sample_id"].to_pylist() == [str(row) for row in range(ROWS - 1)]


def test_vectors_of_two_lengths_are_refused_by_their_lengths() -> None:
    vectors = pd.Series([np.zeros(3), np.zeros(4)])

    with pytest.raises(ds.errors.DatasetError, match="the features have 3 to 4 numbers"):
        ds.score(vectors, ["cat", "dog"])


def test_a_table_in_place_of_a_column_is_refused() -> None:
    table = pa.table({"label": LABELS, "other": LABELS})

    with pytest.raises(ds.errors.DatasetError, match="labels are a table of 2 columns; pass one"):
        ds.score(FEATURES, table)


@pytest.mark.analysis("annotators")
def test_the_index_of_a_data_frame_is_a_column_where_it_has_a_name(expected: ds.Scores) -> None:
    frame = pd.DataFrame({"Ann": LABELS, "Ben": LABELS}, index=pd.Index(IDS, name="sample_id"))
    unnamed = frame.reset_index()[::-1]  # whose index is the numbers of the rows, reversed

    for table in (frame, unnamed):
        report = ds.annotators(expected, table, marks=MARKED)

        assert report.annotators["annotator"].to_pylist() == ["Ann", "Ben"]


@pytest.mark.analysis("annotators")
def test_a_query_that_has_not_been_run_is_refused_by_what_runs_it(expected: ds.Scores) -> None:
    query = polars().LazyFrame({"sample_id": IDS, "label": LABELS})
    calls: list[Callable[[], object]] = [
        lambda: expected.join(query),
        lambda: ds.score(query, LABELS),
        lambda: ds.score(FEATURES, query),
        lambda: ds.score(FEATURES, LABELS, marks=query),
        lambda: ds.annotators(expected, query),
        lambda: ds.score_dataset(query, progress=False),
        lambda: ds.preview(query),
    ]

    for call in calls:
        with pytest.raises(ds.errors.DatasetError, match=r"pass what its `collect\(\)` returns"):
            call()


@pytest.mark.analysis("tags")
def test_a_sample_without_a_list_of_tags_is_refused_by_its_row() -> None:
    tags = pa.array([["a"], None, *[["a", "b"]] * (ROWS - 2)])

    with pytest.raises(ds.errors.DatasetError, match="the tags of row 1 are None; pass a list"):
        ds.tags(FEATURES, tags)


def test_an_estimator_knows_the_name_of_an_only_column() -> None:
    pytest.importorskip("sklearn")
    frame = pd.DataFrame({"length": FEATURES[:, 0]})

    fitted = ds.RelativeMahalanobis().fit(frame, LABELS)

    assert fitted.feature_names_in_.tolist() == ["length"]  # type: ignore[attr-defined]
