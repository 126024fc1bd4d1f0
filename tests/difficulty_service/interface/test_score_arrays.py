"""Arrays are scored like a feature store, whatever object holds them."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from difficulty_service.base.errors import (
    ConfigError,
    DatasetError,
    DuplicateSampleId,
    StatisticsError,
)
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import create_store
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.interface.score import score
from difficulty_service.interface.scores import Scores
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from tests.overlapping_classes import FEATURES, LABELS

Features = NDArray[np.float32]
Labels = NDArray[np.int64]


def read_only(features: Features) -> Features:
    view = features.view()
    view.flags.writeable = False
    return view


SAME_NUMBERS: dict[str, Callable[[Features], Any]] = {
    "lists": lambda x: x.tolist(),
    "a read-only array": read_only,
    "columns in memory": np.asfortranarray,
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "reversed strides": lambda x: x[::-1].copy()[::-1],
    "big-endian numbers": lambda x: x.astype(">f4"),
    "float64": lambda x: x.astype(np.float64),
    "a tensor": torch.from_numpy,
    "a transposed tensor": lambda x: torch.from_numpy(x.T.copy()).T,
    "a tensor with a gradient": lambda x: torch.from_numpy(x.copy()).requires_grad_(),
    "a list of tensors": lambda x: list(torch.from_numpy(x)),
    "a DataFrame": pd.DataFrame,
    "a DataFrame of nullable numbers": lambda x: pd.DataFrame(x).astype("Float32"),
    "a Series of vectors": lambda x: pd.Series(list(x)),
    "an Arrow column": lambda x: pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 6),
    "an Arrow column of lists": lambda x: pa.array(x.tolist()),
    "an Arrow table": lambda x: pa.table({str(i): x[:, i] for i in range(6)}),
}


@pytest.mark.parametrize("convert", SAME_NUMBERS.values(), ids=SAME_NUMBERS)
def test_the_object_that_holds_the_features_does_not_change_the_scores(
    convert: Callable[[Features], Any], scores: Scores
) -> None:
    converted = score(convert(FEATURES), LABELS)

    assert converted.table.column("sample_id") == scores.table.column("sample_id")
    for name in ("rmd", "rmd_loo", "label_margin", "percentile"):
        np.testing.assert_allclose(converted[name], scores[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_are_scored(dtype: torch.dtype, scores: Scores) -> None:
    halved = score(torch.from_numpy(FEATURES).to(dtype), LABELS)

    np.testing.assert_allclose(halved["rmd"], scores["rmd"], atol=0.05)


@pytest.mark.gpu
def test_features_on_a_gpu_are_scored_alike_and_each_time_the_same(scores: Scores) -> None:
    there = torch.from_numpy(FEATURES).cuda(), torch.from_numpy(LABELS).cuda()

    on_gpu = score(*there)

    np.testing.assert_allclose(on_gpu.rmd, scores.rmd, rtol=0, atol=1e-4 * np.abs(scores.rmd).max())
    assert on_gpu["sample_id"].to_pylist() == scores["sample_id"].to_pylist()
    assert score(*there).table == on_gpu.table


@pytest.mark.slow
def test_arrays_and_a_store_of_the_same_features_get_the_same_bytes(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 5, 10_000)
    features = generator.standard_normal((10_000, 16), dtype=np.float32)
    features[np.arange(10_000), labels] += 2
    source = read_arrays(features, labels, None)
    store = create_store(tmp_path / "store", source.description)
    for shard in range(source.num_shards):
        opened = source.open_shard(shard)
        rows = ShardTable(
            opened.sample_ids.to_pylist(), opened.labels, opened.runs, opened.features()
        )
        store.write_shard(shard, rows, [])

    score_features(store, ScoreRequest(tmp_path / "scores.parquet"))

    assert score(features, labels).table == read_scores(tmp_path / "scores.parquet").table


KINDS_OF_LABELS: dict[str, Callable[[Labels], Any]] = {
    "text": lambda y: [("cat", "dog", "bird")[label] for label in y],
    "an array of text": lambda y: np.array(["cat", "dog", "bird"])[y],
    "a categorical Series": lambda y: pd.Series(["cat", "dog", "bird"])[y].astype("category"),
    "an Arrow dictionary": lambda y: pa.array(["cat", "dog", "bird"]).take(y).dictionary_encode(),
}


@pytest.mark.parametrize("convert", KINDS_OF_LABELS.values(), ids=KINDS_OF_LABELS)
def test_classes_of_text_are_sorted(convert: Callable[[Labels], Any], scores: Scores) -> None:
    named = score(FEATURES, convert(LABELS))

    assert named.provenance.class_names == ("bird", "cat", "dog")
    assert named["label_name"].to_pylist()[:3] == ["cat", "dog", "bird"]
    np.testing.assert_allclose(named["rmd"], scores["rmd"], rtol=1e-6)


@pytest.mark.parametrize("kind", [list, np.asarray, torch.tensor, pd.Series, pa.array])
def test_any_integers_are_labels_and_name_their_class(
    kind: Callable[[Any], Any], scores: Scores
) -> None:
    shifted = score(FEATURES, kind((LABELS * 1_000_000_007 + 3).tolist()))

    assert shifted.provenance.class_names == ("3", "1000000010", "2000000017")
    assert shifted["rmd"] == scores["rmd"]


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_rows_without_a_label_are_left_out_with_a_warning(missing: object) -> None:
    some_missing = [missing if row in (3, 7) else int(LABELS[row]) for row in range(len(LABELS))]

    with pytest.warns(UserWarning, match=r"they have no label: 2 of 300"):
        scores = score(FEATURES, some_missing)

    assert len(scores) == 298
    assert not {"3", "7"} & set(scores["sample_id"].to_pylist())
    assert scores.provenance.num_bad_images == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_left_out_with_a_warning(bad: float, dtype: type) -> None:
    damaged = FEATURES.astype(dtype)
    damaged[5, 2] = bad

    with pytest.warns(UserWarning, match=r"NaN or infinity: 1 of 300"):
        scores = score(damaged, LABELS)

    expected = score(np.delete(FEATURES, 5, axis=0).astype(dtype), np.delete(LABELS, 5))
    assert scores["rmd"] == expected["rmd"]
    assert scores["sample_id"].to_pylist()[4:6] == ["4", "6"]


def test_numbers_whose_sum_overflows_are_finite() -> None:
    features = np.random.default_rng(0).uniform(1e4, 3e4, (300, 8)).astype(np.float16)
    features[np.arange(300), LABELS] += 3e4

    assert len(score(features, LABELS)) == 300


def test_ids_are_the_given_ones_or_the_index_of_a_frame() -> None:
    names = [f"photo-{row}" for row in range(len(LABELS))]

    assert score(FEATURES, LABELS, ids=names)["sample_id"].to_pylist() == names
    frame = pd.DataFrame(FEATURES, index=names)
    assert score(frame, LABELS)["sample_id"].to_pylist() == names


INVALID = {
    "features have shape (1800,)": lambda x, y: score(x.ravel(), y),
    "features.reshape(len(features), -1)": lambda x, y: score(x.reshape(300, 2, 3), y),
    "300 feature rows but 299 labels": lambda x, y: score(x, y[1:]),
    "300 feature rows but 2 ids": lambda x, y: score(x, y, ids=["a", "b"]),
    "of type double, but labels are integers or text": lambda x, y: score(x, y + 0.5),
    "labels are no column of one type": lambda x, _: score(x, [1, "b"] * 150),
    "columns ['name'] of the features": lambda _, y: score(pd.DataFrame({"name": ["a"] * 300}), y),
    "an array of <U1": lambda _, y: score([["a"]] * 300, y),
    "complex64": lambda _, y: score(torch.zeros(300, 2, dtype=torch.complex64), y),
    "have 1 to 2 numbers": lambda _, y: score(pa.array([[1.0], [1.0, 2.0]] * 150), y),
    "none of the 300 rows": lambda x, _: score(x, [None] * 300),
    "the features have no rows": lambda x, y: score(x[:0], y[:0]),
    "pass features.toarray()": lambda x, y: score(csr_matrix(x), y),
    "pass images to score_dataset(images, labels)": lambda x, y: score(x.reshape(300, 2, 3), y),
    'score_dataset(texts, labels, modality="text")': lambda _, y: score(["a", "b", "c"] * 100, y),
    "labels.loc[features.index], or labels.to_numpy()": lambda x, y: score(
        pd.DataFrame(x), pd.Series(y)[::-1]
    ),
    "ids have the index of features in another order": lambda x, y: score(
        pd.DataFrame(x), y, ids=pd.Series(range(300))[::-1]
    ),
}


@pytest.mark.parametrize("message", INVALID)
def test_what_cannot_be_scored_is_named(message: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(message)):
        INVALID[message](FEATURES, LABELS)


def test_labels_with_an_index_of_their_own_are_those_of_the_rows_by_position() -> None:
    frame = pd.DataFrame(FEATURES)

    counted_anew = score(frame.set_index(frame.index + 1000), pd.Series(LABELS))

    assert counted_anew["rmd"].to_pylist() == score(FEATURES, LABELS)["rmd"].to_pylist()


def test_rows_and_labels_that_are_masked_are_left_out() -> None:
    masked = np.ma.masked_array(FEATURES, mask=np.zeros_like(FEATURES, dtype=bool))
    masked[3, 1] = np.ma.masked
    unknown = np.ma.masked_array(LABELS, mask=np.arange(len(LABELS)) == 5)

    with pytest.warns(UserWarning, match="rows left out"):
        scores = score(masked, unknown)

    kept = [str(row) for row in range(len(LABELS)) if row not in {3, 5}]
    assert scores["sample_id"].to_pylist() == kept


def test_an_id_that_occurs_twice_is_named() -> None:
    with pytest.raises(DuplicateSampleId, match="'a'"):
        score(FEATURES, LABELS, ids=["a", "a", *map(str, range(298))])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shrinkage": "ledoitwolf"}, r"did you mean 'ledoit-wolf'\?"),
        ({"shrinkage": 2.0}, "or be less than or equal to 1"),
        ({"matmul_dtype": "float16"}, "'auto', 'float32' or 'float64'"),
        ({"scorers": ["knn", "rdm"]}, r"'rdm' is no scorer; did you mean 'rmd'\?"),
    ],
)
def test_an_unknown_option_is_named_with_what_is_known(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        score(FEATURES, LABELS, **options)


def test_a_remedy_is_spelt_as_in_python() -> None:
    features = np.random.default_rng(0).uniform(1e19, 9e19, (300, 4)).astype(np.float32)

    with pytest.raises(StatisticsError, match="fit with matmul_dtype='float64'"):
        score(features, LABELS, matmul_dtype="float32")


def test_the_other_scorers_fill_their_columns() -> None:
    scores = score(FEATURES.astype(np.float64), LABELS, scorers=("kmeans", "knn"))

    assert scores["kmeans"].null_count == scores["knn"].null_count == 0


def test_features_are_not_changed() -> None:
    before = FEATURES.copy()

    score(FEATURES, LABELS)

    assert (before == FEATURES).all()


@pytest.mark.slow
def test_scoring_arrays_does_not_load_pandas() -> None:
    program = """
import sys
import numpy as np
import difficulty_service as ds

labels = np.arange(300) % 3
features = np.random.default_rng(0).standard_normal((300, 6))
ds.score(features, labels)
ds.score(features, ["cat" if label else "dog" for label in labels])
sys.exit("pandas" in sys.modules)
"""

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603
