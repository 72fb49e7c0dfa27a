"""Every table of a Markdown file has its head: a row that a blank line cuts off from it is shown as text."""

import re
from itertools import groupby

from tests.infra.docs.test_links import FENCE, PAGES

RULE = re.compile(r"\|?(\s*:?-+:?\s*\|)+")
"""The line below the head of a table."""


def test_every_table_row_of_the_docs_belongs_to_a_table() -> None:
    cut_off = []
    for page in PAGES:
        lines = FENCE.sub("", page.read_text(encoding="utf-8")).splitlines()
        for is_table, group in groupby(lines, key=lambda line: line.startswith("|")):
            rows = list(group)
            if is_table and not (len(rows) > 1 and RULE.match(rows[1])):
                cut_off.append(f"{page.name}: {rows[0]}")
    assert cut_off == []
