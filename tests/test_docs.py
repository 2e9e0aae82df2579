"""The pages of docs/checks: one for each data check, which says what a person needs."""

import re
from pathlib import Path

import pytest

from gristmill import plan

PAGES = Path(__file__).parent.parent / "docs" / "checks"
CHECKS = dict(plan.stage("validation").checks)


def test_every_data_check_has_a_page_and_no_page_is_of_another() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(CHECKS)


@pytest.mark.parametrize("code", CHECKS)
def test_a_page_has_the_checks_name_and_says_what_it_sees_why_and_what_to_do(code: str) -> None:
    heading, *lines = (PAGES / f"{code}.md").read_text().splitlines()
    assert heading == f"# {code} {CHECKS[code]}"
    titles = [line for line in lines if line.startswith("#")]
    assert titles == ["## What it sees", "## Why it matters", "## What to do"]
    said = re.split(r"^## .*$", "\n".join(lines), flags=re.MULTILINE)[1:]
    assert all(text.strip() for text in said)
