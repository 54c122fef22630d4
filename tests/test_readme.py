from benchmarks.readme import README, refreshed


def test_the_example_and_the_accuracy_table_are_what_the_program_says(monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    text = README.read_text(encoding="utf-8")
    assert refreshed(text) == text, "run scripts/refresh-readme"
