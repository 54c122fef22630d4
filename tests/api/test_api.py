import importlib
import pkgutil

import meshwright as mw


def test_public_names_are_sorted_and_each_can_be_had():
    assert mw.__all__ == sorted(mw.__all__)
    for name in mw.__all__:
        assert getattr(mw, name) is not None


def test_a_verb_stays_the_verb_once_the_floor_of_its_name_is_imported():
    for module in pkgutil.iter_modules(mw.__path__, "meshwright."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    shared = {module.name for module in pkgutil.iter_modules(mw.__path__)} & set(mw.__all__)
    assert "estimate" in shared
    for name in shared:
        assert callable(getattr(mw, name)), name


def test_the_example_of_the_package_runs_and_fits():
    cluster = mw.cluster_for("h100-sxm", nodes=1)
    case = mw.make_case("llama3-8b", cluster, global_batch_sequences=128, sequence_tokens=8192)
    result = mw.find_plans(case, options=mw.SearchOptions(top=2))
    assert result.plans[0].estimate.fits
    assert result.legal == result.evaluated + result.bounded


def test_plans_of_the_api_are_ones_that_the_framework_runs():
    cluster = mw.cluster_for("h100-sxm", nodes=4)
    case = mw.make_case("llama3-8b", cluster, global_batch_sequences=128, sequence_tokens=4096, optimizer="muon")
    plans = mw.find_plans(case, options=mw.SearchOptions(top=3)).plans
    assert plans
    assert not any(mw.framework("megatron").check(case, plan.layout) for plan in plans)
