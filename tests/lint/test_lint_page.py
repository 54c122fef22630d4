from benchmarks.lint_rules import PAGE, page


def test_the_page_is_what_the_table_says():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.lint_rules --write"
