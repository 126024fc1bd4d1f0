"""Features with the labels that people decided on, and what is told of marks that do not fit."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.files import content_digest
from difficulty_service.features.source import FeatureSource
from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, MarkHistory
from difficulty_service.scores.provenance import RandomCheck
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.marked_features import ChangedFeatures, MarkedFeatures, apply_marks
from difficulty_service.scoring.store import score_in_memory
from tests.factories import named, store_of

KEEP, DROP = MarkedSample("", Mark.KEEP), MarkedSample("", Mark.DROP)
TO_DOG, TO_OWL = MarkedSample("", Mark.RELABEL, "dog"), MarkedSample("", Mark.RELABEL, "owl")
SAMPLES, RUNS, DIM = 10, 2, 3
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
FEATURES = torch.from_numpy(np.random.default_rng(0).standard_normal((SAMPLES, RUNS, DIM))).float()
FILES = [f"image {number}".encode() for number in range(SAMPLES)]


def make_store(tmp_path: Path, name: str = "features", **changes: object) -> FeatureStore:
    """Makes a store of ten samples, s0 to s9, in shards of four, each from an image of its own."""
    usual: dict[str, object] = {"contents": FILES, "shard_size": 4}
    return store_of(tmp_path / name, FEATURES, LABELS, **usual | changes)


def apply(
    source: FeatureSource,
    later: Mapping[str, MarkedSample],
    earlier: Mapping[str, MarkedSample] | None = None,
) -> MarkedFeatures:
    history = MarkHistory(named(earlier or {}), named(later))
    return apply_marks(source, history)


def decided(sample_id: str, mark: MarkedSample, given: str, data: bytes) -> MarkedSample:
    """The mark as it is remembered."""
    content = content_digest(data).hex()
    return replace(mark, sample_id=sample_id, given_label=given, content=content, round=1)


def labels_of(source: FeatureSource) -> dict[str, str]:
    """Name of the class of each sample."""
    names = {}
    for shard in range(source.num_shards):
        opened = source.open_shard(shard)
        ids, labels = opened.sample_ids.to_pylist(), opened.labels.tolist()
        names |= {each: source.class_names[label] for each, label in zip(ids, labels, strict=True)}
    return names


def rows_of(source: FeatureSource, num_rows: int) -> list[tuple[str, int, list[float]]]:
    """Id, run and features of all rows, read some at a time."""
    rows = []
    for shard, piece in source.slices(num_rows):
        opened = source.open_shard(shard, rows=piece)
        columns = opened.sample_ids.to_pylist(), opened.runs.tolist(), opened.features().tolist()
        rows += list(zip(*columns, strict=True))
    return rows


def test_relabelled_samples_have_their_class_and_dropped_ones_are_gone(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)

    changed = apply(store, {"s1": DROP, "s3": TO_DOG, "s5": KEEP, "s9": DROP})

    before = labels_of(store)
    assert labels_of(changed) == {
        each: "dog" if each == "s3" else before[each] for each in before if each not in {"s1", "s9"}
    }
    assert changed.applied.verified.to_pylist() == [
        None,
        None,
        "relabel",
        None,
        "keep",
        *[None] * 3,
    ]
    assert changed.applied.given.tolist() == [-1, -1, 0, -1, 1, -1, -1, -1]
    counts = {"relabel": 1, "drop": 2, "keep": 1}
    assert changed.applied.describe() == {"round": 2, "marks": counts}
    assert changed.description.num_samples == SAMPLES - 2
    assert changed.warnings == store.warnings


@pytest.mark.parametrize("num_rows", [2, 6, 100])
def test_every_sample_keeps_its_own_rows(tmp_path: Path, num_rows: int) -> None:
    store = make_store(tmp_path)

    changed = apply(store, {"s0": DROP, "s4": DROP, "s5": DROP, "s6": DROP, "s7": DROP, "s9": DROP})

    left = {"s1", "s2", "s3", "s8"}
    assert rows_of(changed, num_rows) == [row for row in rows_of(store, 100) if row[0] in left]
    digests = [each for shard in range(3) for each in changed.contents(shard).to_pylist()]  # type: ignore[union-attr]
    assert digests == [content_digest(FILES[row]) for row in (1, 2, 3, 8)]


def test_features_of_any_rows_of_a_shard_can_be_read(tmp_path: Path) -> None:
    opened = apply(make_store(tmp_path), {"s1": DROP}).open_shard(0)

    rows = opened.read_features(slice(1, 4))

    assert torch.equal(rows, torch.stack([FEATURES[0, 1], FEATURES[2, 0], FEATURES[2, 1]]))
    assert not len(opened.read_features(slice(3, 3)))


def test_labels_alone_can_be_changed_without_a_copy_of_the_features(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    changed = ChangedFeatures(store, LABELS.flip(0))

    assert list(labels_of(changed).values()) == list(labels_of(store).values())[::-1]
    assert rows_of(changed, 4) == rows_of(store, 4)


def test_a_class_that_the_dataset_lacks_is_added_and_told_of(tmp_path: Path) -> None:
    changed = apply(
        make_store(tmp_path), {"s1": MarkedSample("s1", Mark.RELABEL, "dogs"), "s2": TO_OWL}
    )

    assert changed.class_names == changed.description.class_names == ("cat", "dog", "owl", "dogs")
    assert labels_of(changed)["s1"] == "dogs"
    (warning,) = changed.warnings
    assert warning == "the marks give 1 sample the new class 'dogs'; did you mean 'dog'?"


def test_other_marks_give_another_fingerprint(tmp_path: Path) -> None:
    store = make_store(tmp_path)

    one, other, kept, again = (
        apply(store, {"s1": mark}).description.fingerprint for mark in (DROP, TO_DOG, KEEP, DROP)
    )

    assert len({store.description.fingerprint, one, other, kept}) == 4
    assert again == one


def test_what_is_remembered_has_the_label_and_the_content_that_were_decided_on(
    tmp_path: Path,
) -> None:
    remembered = apply(make_store(tmp_path), {"s1": TO_DOG, "s9": KEEP}).applied.remembered

    assert remembered == {
        "s1": decided("s1", TO_DOG, "cat", FILES[1]),
        "s9": decided("s9", KEEP, "owl", FILES[9]),
    }


def test_a_mark_follows_a_moved_file(tmp_path: Path) -> None:
    remembered = apply(make_store(tmp_path), {"s1": TO_DOG, "s9": DROP}).applied.remembered
    moved = make_store(tmp_path, "moved", ids=[f"new{row}" for row in range(SAMPLES)])

    changed = apply(moved, {}, remembered)

    assert labels_of(changed)["new1"] == "dog"
    assert "new9" not in labels_of(changed)
    assert {*changed.applied.remembered} == {"new1", "new9"}
    (warning,) = changed.warnings
    assert warning == "2 marks are of samples that have another id now: s1, s9"


def test_marks_follow_files_that_swapped_their_names(tmp_path: Path) -> None:
    remembered = apply(make_store(tmp_path), {"s0": TO_DOG, "s1": KEEP}).applied.remembered
    swapped = make_store(tmp_path, "swapped", contents=[FILES[1], FILES[0], *FILES[2:]])

    changed = apply(swapped, {}, remembered)

    assert labels_of(changed)["s1"] == "dog"
    assert changed.applied.verified.to_pylist()[:2] == ["keep", "relabel"]


def test_a_mark_is_not_applied_to_another_content_and_is_remembered(tmp_path: Path) -> None:
    remembered = apply(make_store(tmp_path), {"s0": TO_DOG, "s4": KEEP}).applied.remembered
    changed_file = make_store(tmp_path, "changed", contents=[b"another image", *FILES[1:]])

    changed = apply(changed_file, {}, remembered)

    assert labels_of(changed)["s0"] == "cat"
    assert changed.applied.remembered == remembered
    (warning,) = changed.warnings
    assert warning == "1 mark is of samples that have changed since, and are not applied: s0"


def test_a_changed_sample_can_be_marked_again(tmp_path: Path) -> None:
    remembered = apply(make_store(tmp_path), {"s0": TO_DOG}).applied.remembered
    changed_file = make_store(tmp_path, "changed", contents=[b"another image", *FILES[1:]])

    changed = apply(changed_file, {"s0": KEEP}, remembered)

    assert labels_of(changed)["s0"] == "cat"
    assert changed.applied.remembered["s0"].content == content_digest(b"another image").hex()
    assert changed.warnings == ()


def test_a_label_that_was_changed_in_the_dataset_is_newer_than_its_mark(
    tmp_path: Path,
) -> None:
    marks = {"s0": replace(TO_DOG, given_label="owl"), "s1": replace(KEEP, given_label="dog")}

    changed = apply(make_store(tmp_path), {"s9": KEEP}, marks)

    assert labels_of(changed)["s0"] == labels_of(changed)["s1"] == "cat"
    (warning,) = changed.warnings
    assert "2 marks are of samples that have another label since" in warning


def test_a_relabelled_sample_may_have_its_new_label_in_the_dataset(tmp_path: Path) -> None:
    changed = apply(make_store(tmp_path), {}, {"s4": replace(TO_DOG, given_label="cat")})

    assert changed.applied.verified.to_pylist()[4] == "relabel"
    assert changed.applied.given[4] == 0
    assert changed.warnings == ()


def test_dropping_one_of_two_copies_says_nothing_about_the_other(tmp_path: Path) -> None:
    copies = [FILES[0], FILES[0], *FILES[2:]]
    remembered = apply(make_store(tmp_path, contents=copies), {"s0": DROP}).applied.remembered
    renamed = make_store(
        tmp_path, "renamed", contents=copies, ids=["a", *[f"s{row}" for row in range(1, 10)]]
    )

    assert {"a", "s1"} <= {*labels_of(apply(renamed, {}, remembered))}


def test_a_dropped_sample_that_is_gone_is_nothing_to_tell(tmp_path: Path) -> None:
    changed = apply(make_store(tmp_path), {"s1": KEEP, "gone": DROP, "lost": KEEP})

    (warning,) = changed.warnings
    assert warning == "1 mark is not in the dataset: lost"
    assert {*changed.applied.remembered} == {"s1", "gone", "lost"}


@pytest.mark.parametrize(
    ("later", "mark", "label"),
    [
        (KEEP, "relabel", "dog"),
        (TO_OWL, "relabel", "owl"),
        (MarkedSample("", Mark.RELABEL, "cat"), "keep", "cat"),
    ],
)
def test_a_later_mark_is_about_the_sample_as_the_earlier_one_left_it(
    tmp_path: Path, later: MarkedSample, mark: str, label: str
) -> None:
    store = make_store(tmp_path)
    earlier = apply(store, {"s1": TO_DOG}).applied.remembered

    changed = apply(store, {"s1": later}, earlier)

    assert changed.applied.verified.to_pylist()[1] == mark
    assert labels_of(changed)["s1"] == label
    assert changed.applied.given[1] == 0
    assert changed.applied.remembered["s1"].given_label == "cat"


def test_a_mark_has_the_number_of_its_round(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first = apply(store, {"s1": TO_DOG, "s2": KEEP}).applied.remembered

    second = apply(store, {"s1": TO_DOG, "s3": DROP}, first).applied.remembered

    rounds = {each: marked.round for each, marked in second.items()}
    assert rounds == {"s1": 1, "s2": 1, "s3": 2}


def test_a_random_choice_is_of_what_nobody_had_looked_at(tmp_path: Path) -> None:
    at_random = {"order": "random"}
    store = make_store(tmp_path)
    first = apply(store, {"s0": KEEP, "s1": DROP}).applied
    second = apply(
        store,
        {
            "s2": replace(KEEP, **at_random),
            "s3": replace(TO_DOG, **at_random),
            "s4": replace(KEEP, **at_random),
            "s5": TO_OWL,
        },
        first.remembered,
    ).applied
    third = apply(store, {"s6": DROP, "s7": KEEP}, second.remembered).applied

    assert first.check is None
    same = {"checked": 3, "wrong": 1, "among": 8, "beside": 1, "wrong_beside": 1}
    assert second.check == RandomCheck(since=1, **same)
    assert third.check == RandomCheck(since=2, **same)


def test_marks_of_another_dataset_are_refused_and_remembered_ones_are_not(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)

    with pytest.raises(CleaningError, match="none of 1 marked sample is in the dataset as it was"):
        apply(store, {"gone": DROP})
    assert labels_of(apply(store, {}, {"gone": TO_DOG})) == labels_of(store)


def test_dropping_everything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CleaningError, match="the marks drop every sample"):
        apply(make_store(tmp_path), {f"s{row}": DROP for row in range(SAMPLES)})


def test_features_without_known_contents_are_found_by_their_ids(tmp_path: Path) -> None:
    changed = apply(make_store(tmp_path, contents=None), {"s1": replace(TO_DOG, content="78" * 32)})

    assert labels_of(changed)["s1"] == "dog"


def test_scores_say_that_a_verified_label_is_right(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    labels = torch.arange(120) % 3
    features = torch.from_numpy(generator.standard_normal((120, 6))).float()
    features += 6 * torch.eye(3, 6)[labels]
    flipped = labels.clone()
    flipped[:6] = (labels[:6] + 1) % 3
    store = store_of(tmp_path, features, flipped)
    marks = {
        f"s{row}": MarkedSample(f"s{row}", Mark.RELABEL, ("cat", "dog", "owl")[row % 3])
        for row in (0, 1)
    }

    changed = apply(store, {**marks, "s100": KEEP, "s101": DROP})
    scores = score_in_memory(changed, fit_store(changed, FitOptions()))

    rows = {row["sample_id"]: row for row in scores.table.to_pylist()}
    assert "s101" not in rows
    assert [rows[each]["mark"] for each in ("s0", "s1", "s2", "s100")] == [
        *("relabel", "relabel"),
        *(None, "keep"),
    ]
    for each in ("s0", "s1", "s100"):
        assert (rows[each]["p_wrong"], rows[each]["suspicion"]) == (0, None)
    assert [rows[f"s{row}"]["label_name"] for row in (0, 1)] == ["cat", "dog"]
    assert 0 < rows["s2"]["p_wrong"] < 1
    assert scores.provenance.marks == {"keep": 1, "relabel": 2, "drop": 1}
    assert scores.provenance.num_samples == 119


def test_a_box_that_is_misplaced_has_a_right_label_and_is_fitted_like_any_other(
    tmp_path: Path,
) -> None:
    labels = torch.arange(120) % 3
    features = torch.from_numpy(np.random.default_rng(5).standard_normal((120, 4))).float()
    store = store_of(tmp_path / "features", features, labels, boxes=True)

    def rows_with(marks: Mapping[str, MarkedSample]) -> dict[str, dict[str, object]]:
        changed = apply(store, marks)
        assert changed.applied.given.tolist() == [0, *[-1] * 119]  # of the sample that is kept
        scores = score_in_memory(changed, fit_store(changed, FitOptions()))
        assert (scores.provenance.marks or {}).get("misplaced") == sum(
            each.mark is Mark.MISPLACED for each in marks.values()
        )
        return {row["sample_id"]: row for row in scores.table.to_pylist()}

    misplaced = rows_with({"s7": MarkedSample("s7", Mark.MISPLACED), "s0": KEEP})
    unmarked = rows_with({"s0": KEEP})

    assert {name for name, row in misplaced.items() if row != unmarked[name]} == {"s7"}
    assert misplaced["s7"] == unmarked["s7"] | {
        "mark": "misplaced",
        "suspicion": None,
        "p_wrong": 0,
    }


def test_samples_that_are_no_boxes_cannot_be_misplaced(tmp_path: Path) -> None:
    with pytest.raises(
        CleaningError, match="2 samples are marked misplaced, which only boxes"
    ) as error:
        apply(make_store(tmp_path), dict.fromkeys(("s1", "s2"), MarkedSample("", Mark.MISPLACED)))

    assert "mark them keep, relabel, drop; if they are boxes, score" in str(error.value)
