"""The quick form, with torch, goes through both halves."""

from experiments import home_figure9


def test_a_quick_run_predicts_and_runs_plans_with_copies_beside_computing(tmp_path):
    claims = home_figure9.run(tmp_path, quick=True)

    assert {path.name for path in tmp_path.iterdir()} == {
        "home_figure9.png",
        "home_figure9_cpu.csv",
        "home_figure9_evaluator.csv",
    }
    assert [claim.claim for claim in claims if not claim.holds] == []
