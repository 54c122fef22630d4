from benchmarks.frameworks import PAGE, measured, page

from meshwright.frameworks import frameworks


def test_the_page_is_what_the_registry_and_the_last_measurement_say():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.frameworks --registry"


def test_every_measurement_is_of_a_framework_and_whole():
    found = measured()
    assert found
    for one in found:
        assert one.name.partition("@")[0] in frameworks()
        assert all(0 <= one.accepted[feature] <= asked for feature, asked in one.asked.items())
        assert one.reverse_allowed + one.reverse_later <= one.reverse_accepted
        assert one.refusals.total() == one.asked.total() - one.accepted.total()
