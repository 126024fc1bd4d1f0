"""A cleaned list has what is kept, with the labels that were decided on."""

import csv
import io
from pathlib import Path

from tests.api.pages.test_suspicion import opened


def test_a_cleaned_list_lacks_what_was_dropped_and_has_the_new_labels(tmp_path: Path) -> None:
    client, address = opened(tmp_path)

    with client:
        before = read(client.get(f"/v1{address}/cleaned.csv").text)
        other = next(row["label"] for row in before if row["label"] != before[1]["label"])
        marks = [
            {"row": 0, "decision": {"mark": "drop"}},
            {"row": 1, "decision": {"mark": "relabel", "label": other}},
        ]
        client.post(f"/v1{address}/marks", json={"marks": marks}).raise_for_status()
        after = read(client.get(f"/v1{address}/cleaned.csv").text)
        page = client.get(f"{address}/cleaned").text

    assert [row["sample_id"] for row in after] == [row["sample_id"] for row in before[1:]]
    assert (after[0]["label"], after[0]["mark"]) == (other, "relabel")
    assert after[0]["original_label"] == before[1]["label"]
    assert after[1:] == before[2:]
    assert "1 dropped, 1 relabelled in this round" in page


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
