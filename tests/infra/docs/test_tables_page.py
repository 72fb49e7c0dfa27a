from infra.docs.tables_page import PAGE, tables_page


def test_tables_page_in_docs_equals_the_schemas() -> None:
    assert PAGE.read_text(encoding="utf-8") == tables_page()
