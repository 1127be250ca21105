import pytest

from volmin import methods
from volmin.experiments import paper


def test_published_numbers():
    table1, table2, table3 = (paper.study(name).published for name in ("table1", "table2", "table3"))
    assert table1["mnist", "pair:0.45", "volminnet"] == (pytest.approx(0.9900), pytest.approx(0.0007))
    assert table1["mnist", "pair:0.45", "forward"] == (pytest.approx(0.7506), pytest.approx(0.1261))
    assert table1["cifar100", "sym:0.5", "dual_t"] == (pytest.approx(0.5249), pytest.approx(0.0037))
    assert table3["cifar10/NA", "sym:0.2", "volminnet"] == (pytest.approx(0.8872), pytest.approx(0.0003))
    assert table2["clothing1m", "none", "ptd"] == (pytest.approx(0.7167), None)
    assert len(table1) == len(table3) == 8 * 3 * 4
    assert len(table2) == 8


def test_volminnet_has_the_best_published_mean_in_every_column():
    for name in ("table1", "table3"):
        study = paper.study(name)
        for dataset in study.datasets:
            for noise in study.noises:
                column = {
                    method: mean for (d, n, method), (mean, _) in study.published.items() if (d, n) == (dataset, noise)
                }
                assert column["volminnet"] == max(column.values()), (dataset, noise)


def test_options_of_every_row_exist():
    for study in paper.STUDIES.values():
        for row in study.rows:
            methods.check_options(methods.get(row.method), row.options)


def test_specs_are_ordered_by_seed():
    study = paper.study("table1").select(["mnist"], ["sym:0.2", "pair:0.45"], ["volminnet", "gce"], 2)
    specs = study.specs()
    assert [(s.seed, s.noise, s.method) for s in specs] == [
        (seed, noise, method)
        for seed in (1, 2)
        for noise in ("sym:0.2", "pair:0.45")
        for method in ("volminnet", "gce")
    ]
    assert {s.recipe.epochs for s in study.specs(epochs=2)} == {2}


def test_ablation_varies_the_weight_of_the_volume():
    specs = paper.study("ablation").select(["mnist"]).specs()
    assert {s.options["lam"] for s in specs} == {0.0, 1e-4, 1e-3}
    assert len(specs) == 3 * 2 * 3


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="Unknown table or figure 'table9'. Choose one of: table1"):
        paper.study("table9")
    with pytest.raises(ValueError, match="Unknown method 'magic'"):
        paper.study("table1").select(methods=["magic"])
