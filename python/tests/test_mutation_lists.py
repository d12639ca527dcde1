"""The lists of mutants in scripts/mutation agree with each other and with the sources."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scripts" / "mutation"


def rows(name: str) -> list[dict[str, str]]:
    if not FOLDER.exists():
        pytest.skip("needs the tree")
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_survivors_are_places_of_the_sources() -> None:
    for row in rows("survivors.csv"):
        source = " ".join((ROOT / row["file"]).read_text(encoding="utf-8").split())
        assert row["reason"] and " ".join(row["original"].split()) in source, row


def test_survivors_are_those_of_the_judged_list() -> None:
    left = {(row["file"], row["mutated"]): row["reason"] for row in rows("survivors.csv")}
    judged = [row for row in rows("judged_20261123.csv") if row["known"] == "survives"]
    assert {(row["file"], row["mutated"]): row["by"] for row in judged} == left


def test_of_the_places_that_are_left_19_in_20_mutants_are_caught() -> None:
    counts = Counter(row["known"] for row in rows("judged_20261123.csv"))
    left, caught = counts.total() - counts["gone"], counts["seen"] + counts["told"]
    page = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    said = f"Of the {left} mutants whose places are left, {caught} are caught ({100 * caught / left:.1f} %)"
    assert said in page and caught >= 0.95 * left


def test_the_page_counts_what_the_list_says() -> None:
    counts = Counter(row["known"] for row in rows("judged_20261123.csv"))
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.M)} == counts
