"""What marks and conditions decide about the samples of a score file."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from difficulty_service.base.errors import CleaningError, ScoreFileError
from difficulty_service.cleaning.decisions import (
    MARKED_DROP,
    ClassCounts,
    CleaningRules,
    DroppedCopies,
    decide,
)
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.provenance import Provenance
from tests.score_files import make_scores

DROP, KEEP = MarkedSample("", Mark.DROP), MarkedSample("", Mark.KEEP)
TO_CAT = MarkedSample("", Mark.RELABEL, "cat")


def test_marks_drop_relabel_and_keep() -> None:
    decided = decide(make_scores(), CleaningRules({"a": DROP, "b": TO_CAT, "c": KEEP}))

    assert decided.kept().to_pydict() == {
        "sample_id": ["b", "c", "d", "e", "f"],
        "label": ["cat", "cat", "cat", "dog", "dog"],
        "original_label": ["bird", "cat", "cat", "dog", "dog"],
        "mark": ["relabel", "keep", None, None, None],
    }
    assert decided.dropped().to_pylist() == [
        {"sample_id": "a", "label": "bird", "reason": MARKED_DROP}
    ]


def test_conditions_drop_and_relabel_to_the_nearest_class() -> None:
    rules = CleaningRules({}, drop="label_margin > 1", relabel="label_margin >= 0")

    decided = decide(make_scores(), rules)

    assert decided.kept()["label"].to_pylist() == ["bird", "bird", "cat", "dog", "bird"]
    assert decided.dropped().to_pydict() == {
        "sample_id": ["f"],
        "label": ["dog"],
        "reason": ["label_margin > 1"],
    }


def test_a_mark_has_precedence_over_both_conditions() -> None:
    marks = {"e": KEEP, "f": KEEP, "a": KEEP, "d": DROP}
    rules = CleaningRules(marks, drop="label_margin > 1", relabel="label_margin >= 0")

    decided = decide(make_scores(), rules)

    kept = decided.kept().to_pydict()
    assert dict(zip(kept["sample_id"], kept["label"], strict=True))["f"] == "dog"
    assert dict(zip(kept["sample_id"], kept["label"], strict=True))["e"] == "dog"
    assert decided.dropped()["sample_id"].to_pylist() == ["d"]
    assert "3 samples selected by a condition follow their mark instead" in decided.warnings


def with_copies(scores: ScoreFile, **copy_of: list[str | None]) -> ScoreFile:
    table = scores.table
    for name, column in copy_of.items():
        table = table.append_column(name, pa.array(column, pa.string()))
    return replace(scores, table=table)


def test_of_copies_the_first_that_a_person_marked_is_kept_else_the_first() -> None:
    # Birds a and b, cats c and d, dogs e and f; a copy of a copy belongs to its group.
    scores = with_copies(
        make_scores(), near_duplicate_of=[None, "a", "b", "c", None, "e"], duplicate_of=[None] * 6
    )

    kept_first = decide(
        scores,
        CleaningRules(
            {"c": MarkedSample("c", Mark.RELABEL, "bird"), "d": DROP}, drop_duplicates=True
        ),
    )

    assert kept_first.kept()["sample_id"].to_pylist() == ["c", "e"]
    assert kept_first.dropped().to_pydict() == {
        "sample_id": ["a", "b", "d", "f"],
        "label": ["bird", "bird", "cat", "dog"],
        "reason": ["copy of c", "copy of c", MARKED_DROP, "copy of e"],
    }
    assert kept_first.copies == DroppedCopies(surplus=3, conflicting=0)


def test_of_copies_with_different_labels_none_is_kept_unless_one_is_marked() -> None:
    # b and c, d and e have different labels; what a condition relabels counts with its new label.
    scores = with_copies(make_scores(), duplicate_of=[None, None, "b", None, "d", None])
    rules = CleaningRules({"a": KEEP}, drop_duplicates=True)

    unmarked = decide(scores, rules)
    marked = decide(scores, replace(rules, marks={"c": KEEP, "d": KEEP, "e": KEEP}))
    agreeing = decide(scores, replace(rules, relabel="sample_id in ('b', 'e')"))

    reason = "copies have different labels: "
    assert {each["sample_id"]: each["reason"] for each in unmarked.dropped().to_pylist()} == {
        "b": f"{reason}bird, cat",
        "c": f"{reason}bird, cat",
        "d": f"{reason}cat, dog",
        "e": f"{reason}cat, dog",
    }
    assert unmarked.copies == DroppedCopies(surplus=0, conflicting=4)
    assert marked.dropped()["reason"].to_pylist() == ["copy of c", *[f"{reason}cat, dog"] * 2]
    assert marked.warnings[0] == (
        "2 marked samples are dropped, because a copy is marked with another label: d, e"
    )
    assert agreeing.kept()["sample_id"].to_pylist() == ["a", "b", "f"]


def test_a_verified_copy_is_kept_where_the_scores_alone_know_of_its_mark() -> None:
    scores = with_copies(
        make_scores(),
        duplicate_of=[None, "a", None, None, None, None],
        mark=[None, "keep", None, None, None, None],
    )

    decided = decide(scores, CleaningRules({}, drop_duplicates=True))

    assert decided.dropped()["sample_id"].to_pylist() == ["a"]


def test_copies_that_are_not_known_are_refused_and_none_at_all_is_said() -> None:
    rules = CleaningRules({}, drop_duplicates=True)

    with pytest.raises(CleaningError, match=r"no duplicate_of; .*without augment_runs") as refused:
        decide(make_scores(), rules)

    assert refused.value.parameter == "drop_duplicates"
    assert decide(with_copies(make_scores(), duplicate_of=[None] * 6), rules).warnings == (
        "no sample is known to be a copy of another, so no copy is dropped",
    )


def test_the_counts_of_each_class_add_up() -> None:
    decided = decide(make_scores(), CleaningRules({"a": DROP, "b": TO_CAT, "e": TO_CAT}))

    assert decided.classes == {
        "bird": ClassCounts(before=2, dropped=1, moved_out=1, moved_in=0),
        "cat": ClassCounts(before=2, dropped=0, moved_out=0, moved_in=2),
        "dog": ClassCounts(before=2, dropped=0, moved_out=1, moved_in=0),
    }
    assert [counts.after for counts in decided.classes.values()] == [0, 4, 1]
    assert decided.warnings == ("class 'bird' has no samples left",)


def test_a_mark_with_the_present_class_keeps_the_sample() -> None:
    decided = decide(make_scores(), CleaningRules({"c": TO_CAT}))

    assert decided.table["mark"].to_pylist() == [None, None, "keep", None, None, None]


def test_an_unknown_class_is_refused_unless_new_classes_are_allowed() -> None:
    marks = {"a": MarkedSample("a", Mark.RELABEL, "eagle")}

    with pytest.raises(CleaningError, match=r"'eagle', but the classes are bird, cat, dog"):
        decide(make_scores(), CleaningRules(marks))
    decided = decide(make_scores(), CleaningRules(marks, new_classes=True))

    assert decided.classes["eagle"] == ClassCounts(0, 0, 0, 1)


def test_a_class_without_samples_that_the_file_names_is_known() -> None:
    scores = make_scores(class_names=["bird", "cat", "dog", "fox"])

    decided = decide(scores, CleaningRules({"a": MarkedSample("a", Mark.RELABEL, "fox")}))

    assert decided.classes["fox"].after == 1


def test_class_indices_of_another_dataset_do_not_get_wrong_names() -> None:
    # Against the Gaussians of another dataset the indices are those of that dataset.
    scores = make_scores(["a", "b", "c"], class_names=["cat", "bird", "ant"])

    decided = decide(scores, CleaningRules({}, relabel="label_margin >= -2"))

    assert decided.table["label"].to_pylist() == ["bird", "cat", "cat"]


@pytest.mark.parametrize("condition", ["suspicion > 0", "p_wrong > 0.5"])
def test_a_condition_on_the_suspicion_relabels_to_the_suggested_class(condition: str) -> None:
    scores = make_scores()
    suspicion = pa.array([2.0, -1.0, 3.0, None, -2.0, 1.0])
    suggested = pa.array(["dog", "cat", "bird", None, "cat", None]).dictionary_encode()
    table = scores.table
    for name, column in (
        ("suspicion", suspicion),
        ("p_wrong", pc.divide(1, pc.add(1, pc.exp(pc.negate(suspicion))))),
        ("suggested_label_name", suggested),
    ):
        table = table.append_column(name, column)

    decided = decide(replace(scores, table=table), CleaningRules({}, relabel=condition))

    assert decided.table["label"].to_pylist() == ["dog", "bird", "bird", "cat", "dog", "dog"]
    assert decided.warnings == (
        "1 samples keep their label, because their suggested class is unknown",
    )


@pytest.mark.parametrize(
    "rules",
    [
        CleaningRules({}, drop="suspicion > 0"),
        CleaningRules({}, relabel="label_margin > 0 and suspicion > 0"),
    ],
)
def test_a_condition_on_scores_that_were_not_asked_for_is_refused(rules: CleaningRules) -> None:
    with pytest.raises(CleaningError, match=r"'suspicion', which .*; score with scorers='suspic"):
        decide(make_scores(), rules)


def test_a_class_to_relabel_to_that_is_absent_is_named() -> None:
    scores = make_scores()
    table = scores.table.append_column("suspicion", [[1.0] * len(scores.table)])

    with pytest.raises(ScoreFileError, match=r"no suggested_label_name; .*scorers='suspicion'"):
        decide(replace(scores, table=table), CleaningRules({}, relabel="suspicion > 0"))


def test_samples_whose_nearest_class_has_no_name_keep_their_label() -> None:
    scores = make_scores(list("abcd"), class_names=[])

    decided = decide(scores, CleaningRules({}, relabel="label_margin >= 0"))

    assert decided.table["label"].to_pylist() == ["bird", "bird", "cat", "cat"]
    assert decided.warnings == (
        "1 samples keep their label, because their nearest class is unknown",
    )


def test_marks_of_unknown_samples_are_listed_and_the_others_used() -> None:
    unknown = {f"x{number:02d}": DROP for number in range(22)}

    decided = decide(make_scores(), CleaningRules({**unknown, "a": DROP}))

    assert decided.dropped()["sample_id"].to_pylist() == ["a"]
    assert "22 marked samples are not in the score file: x00, x01" in decided.warnings[0]
    assert decided.warnings[0].endswith("x19 and 2 more")


def test_marks_of_which_none_belongs_to_a_sample_are_refused() -> None:
    with pytest.raises(CleaningError, match=r"none of the 1 marked samples.*'x'.*'a', 'b', 'c'"):
        decide(make_scores(), CleaningRules({"x": DROP}))


def test_the_original_label_is_that_of_the_dataset_where_a_mark_was_applied_before() -> None:
    marks = {"a": MarkedSample("a", Mark.RELABEL, "bird", given_label="dog")}

    kept = decide(make_scores(), CleaningRules(marks)).kept().to_pylist()

    assert kept[0] == {
        "sample_id": "a",
        "label": "bird",
        "original_label": "dog",
        "mark": "relabel",
    }


def test_what_was_dropped_before_scoring_is_listed_as_dropped() -> None:
    scores = make_scores()
    marks = {"gone": MarkedSample("gone", Mark.DROP, given_label="cat"), "a": KEEP}
    known = replace(scores, provenance=Provenance(marks={"drop": 1, "keep": 1, "relabel": 0}))

    decided = decide(known, CleaningRules(marks))

    dropped = decided.dropped().to_pylist()
    assert dropped == [{"sample_id": "gone", "label": "cat", "reason": MARKED_DROP}]
    assert decided.classes["cat"].dropped == 1
    assert decided.warnings == ()


def test_what_was_not_dropped_before_scoring_is_told_of() -> None:
    marks = {"gone": MarkedSample("gone", Mark.DROP, given_label="cat"), "a": KEEP}

    decided = decide(make_scores(), CleaningRules(marks))

    assert not decided.dropped().num_rows
    assert decided.warnings == ("1 marked sample is not in the score file: gone",)


def test_misplaced_boxes_stay_and_are_listed_with_their_images() -> None:
    scores = make_scores(["a#1", "a#2", "x/b#c#3", "d#4", "e#5", "f#6"], boxes=True)
    marks = {
        "a#1": MarkedSample("a#1", Mark.MISPLACED, round=2),
        "x/b#c#3": MarkedSample("x/b#c#3", Mark.MISPLACED, "dog", given_label="cat"),
        "d#4": DROP,
    }

    decided = decide(scores, CleaningRules(marks, drop="label_margin < 0"))

    assert decided.misplaced().to_pylist() == [
        {"sample_id": "a#1", "image": "a", "box": "1", "label": "bird", "round": 2},
        {"sample_id": "x/b#c#3", "image": "x/b#c", "box": "3", "label": "dog", "round": None},
    ]
    assert decided.dropped()["sample_id"].to_pylist() == ["a#2", "d#4"]


def test_a_mark_of_boxes_is_refused_for_other_samples() -> None:
    with pytest.raises(CleaningError, match="1 sample is marked misplaced, which only boxes"):
        decide(make_scores(), CleaningRules({"a": MarkedSample("a", Mark.MISPLACED)}))
