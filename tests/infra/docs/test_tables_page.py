from infra.docs.tables_page import PAGE, tables_page


def test_tables_page_in_docs_equals_the_schemas() -> None:
    assert PAGE.read_text(encoding="utf-8") == tables_page()


def test_tables_page_describes_a_column_of_several_tables_once() -> None:
    lines = tables_page().splitlines()
    assert sum(line.startswith("- `reader_fingerprint` (string): hash of all else") for line in lines) == 1
    assert any(line.startswith("As in `answers/`: ") and "`reader_fingerprint`" in line for line in lines)
