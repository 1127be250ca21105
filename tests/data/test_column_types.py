"""Columns as people write them: what they are taken for, and what is left of them."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volmin.data.tables import TableEncoder, describe_uses
from volmin.data.tables.parsing import parse_booleans, parse_dates, parse_numbers
from volmin.data.tables.recognition import fit_column
from volmin.exceptions import DataError, InputError

GENERATOR = np.random.default_rng(0)
AMOUNTS = GENERATOR.lognormal(7, 1, 200).round(2)


def fitted(types=None, **columns):
    frame = pl.DataFrame(columns)
    return TableEncoder().fit(frame, frame.columns, types)


def use(values, **types):
    return fit_column(pl.Series("x", values), types.get("type"))[0]


@pytest.mark.parametrize(
    "write",
    [
        lambda amount: f"{amount:,.2f}",
        lambda amount: f"${amount:,.2f}",
        lambda amount: f"{amount:,.2f} €",
        lambda amount: f"EUR {amount:.2f}",
        lambda amount: f"{amount:,.2f}".replace(",", "'"),
        lambda amount: f"{amount:,.2f}".replace(",", " ").replace(".", ","),
        lambda amount: f"{amount:,.2f}".translate(str.maketrans(",.", ".,")),
        lambda amount: f"{amount}%",
        lambda amount: f" {amount} kg",
        lambda amount: f"{amount:e}",
    ],
)
def test_numbers_are_read_as_people_write_them(write):
    parsed = parse_numbers(pl.Series([write(amount) for amount in AMOUNTS]))
    assert parsed.strays == 0
    assert np.allclose(parsed.values.to_numpy(), AMOUNTS, rtol=1e-5)
    encoder = fitted(x=[write(amount) for amount in AMOUNTS])
    assert encoder.uses[0].kind == "number"
    # New rows may be written differently, or already be numbers.
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert np.allclose(
        again.transform(pl.DataFrame({"x": AMOUNTS})),
        encoder.transform(pl.DataFrame({"x": [write(amount) for amount in AMOUNTS]})),
        atol=1e-4,
    )


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1))
def test_numbers_with_separators_are_read_exactly(values):
    assert parse_numbers(pl.Series([f"{value:,}" for value in values])).values.to_list() == values


def test_negative_amounts_of_accounts():
    assert parse_numbers(pl.Series(["(1,234.50)", "−7", "- 3", "+2"])).values.to_list() == [-1234.5, -7, -3, 2]


def test_missing_words_and_strays_of_a_column_of_numbers():
    values = [f"{amount}" for amount in AMOUNTS]
    values[::40] = ["unknown", "N/A", "-", "", "tall"]
    found = fitted(x=values)
    assert found.uses[0].kind == "number"
    assert "1 values not understood and taken as missing, such as 'tall'" in found.uses[0].note
    assert "2.5% missing" in found.uses[0].note
    features = found.transform(pl.DataFrame({"x": values}))
    assert np.flatnonzero(features[:, 1]).tolist() == [0, 40, 80, 120, 160]


@pytest.mark.parametrize(
    ("form", "order"),
    [
        ("%d/%m/%Y", "day/month/year"),
        ("%m/%d/%Y", "month/day/year"),
        ("%d.%m.%y", "day/month/year"),
        ("%Y/%m/%d", "year-month-day"),
        ("%d %b %Y", "day/month/year"),
        ("%B %d, %Y", "month/day/year"),
        ("%d-%b-%Y %H:%M", "day/month/year"),
        ("%m/%d/%Y %I:%M %p", "month/day/year"),
        ("%Y-%m-%dT%H:%M:%SZ", "year-month-day"),
    ],
)
def test_dates_are_read_in_common_orders(form, order):
    times = pl.datetime_range(pl.datetime(2019, 1, 1), pl.datetime(2024, 5, 1), "37h", eager=True)
    parsed = parse_dates(times.dt.strftime(form))
    assert (parsed.style, parsed.strays, parsed.ambiguous) == (order, 0, False)
    whole = times if "H" in form or "I" in form else times.dt.truncate("1d")
    assert parsed.values.dt.epoch("s").equals(whole.dt.truncate("1m" if "M" in form else "1d").dt.epoch("s"))
    assert use(times.dt.strftime(form)).kind == "date"


def test_ambiguous_order_of_dates_is_reported_and_can_be_set():
    days = ["01/02/2024", "03/04/2024", "05/06/2023"] * 10
    assert use(days).note == "day/month/year (month/day/year would fit too)"
    assert use(days, type="month/day/year").note == "month/day/year"
    assert parse_dates(pl.Series(["30/02/2024", "12/13/2024"])).strays == 1


def test_truth_values_in_words():
    parsed = parse_booleans(pl.Series(["Yes", "no ", "?", None, "Y"]))
    assert parsed.values.to_list() == [True, False, None, None, True]
    assert use(["ja", "nein", ""] * 10).kind == "boolean"


def test_kinds_of_text():
    questions = [
        f"how do i {verb} my {thing} {row}" for row in range(20) for verb in ("open", "close") for thing in "ab"
    ]
    titles = [
        f"{colour} {thing}"
        for colour in ["red", "blue", "grey", "pink"]
        for thing in ["hat", "shoe", "bag", "coat", "sock"]
    ]
    kinds = {
        "text": questions,
        "category": ["red", "green", "blue"] * 15,
        "left out": [f"a{row:x}9" for row in range(50)],
    }
    for kind, values in kinds.items():
        assert use(values).kind == kind, values[0]
    assert use(titles * 3).kind == "category"
    assert use([f"{title} {row % 7}" for row, title in enumerate(titles * 5)]).kind == "text"
    assert use(["商品の到着がとても遅いです" + str(row) for row in range(60)]).kind == "text"
    assert use(["01234", "99999", "10115", "80331"] * 10).kind == "category"
    assert use(["Strongly agree with this", "Do not agree at all"] * 30).kind == "category"


def test_columns_without_content_are_left_out_with_the_reason():
    count = np.arange(2000)
    columns = {
        "id": [f"u{row}" for row in count],
        "row": GENERATOR.permutation(count) + 7,
        "customer_id": GENERATOR.permutation(count) * 977 + 12345,
        "empty": [None] * 2000,
        "constant": [1.0] * 2000,
        "nearly": [True, *[False] * 1999],
        "lists": [[1]] * 2000,
        "x": count / 3,
        "year": 1990 + count % 30,
        "cents": GENERATOR.permutation(count) * 977 + 12345,
    }
    encoder = fitted(**columns)
    assert encoder.feature_names == ["x", "year", "cents"]
    assert [use.note for use in encoder.uses[:7]] == [
        "identifies rows: 2,000 different values",
        "numbers the rows",
        "identifies rows: all values differ",
        "empty",
        "constant",
        "nearly constant",
        "holds List(Int64)",
    ]
    with pytest.raises(DataError, match=r"no feature columns besides its labels: 'id' \(identifies rows"):
        fitted(id=columns["id"])


def test_many_categories_are_encoded_by_frequency_and_spelling():
    cities = [f"{name}{place}" for name in ("berg", "stadt", "dorf") for place in range(40)]
    encoder = fitted(x=cities * 3)
    assert encoder.uses[0].note == "120 values: the 50 most frequent, and the spelling of all"
    features = encoder.transform(pl.DataFrame({"x": ["berg39", "stadt39", "berg38"]}))[:, 51:]
    distance = np.linalg.norm(features[:, None] - features[None], axis=-1)
    assert distance[0, 2] < distance[0, 1]


def test_types_can_be_set():
    codes = [1, 2, 3] * 20
    assert use(codes).kind == "number"
    assert use(codes, type="category").features == 4
    assert fitted({"x": "ignore"}, x=codes, y=codes).uses[0].kind == "left out"
    assert use([f"w{row} a" for row in range(60)], type="text").kind == "text"
    assert use(list(range(60)), type="number").kind == "number"
    with pytest.raises(InputError, match="must be one of number, date, .*, but is 'colour'"):
        fitted({"x": "colour"}, x=codes)
    with pytest.raises(InputError, match="no column 'z'"):
        fitted({"z": "text"}, x=codes)
    with pytest.raises(DataError, match="cannot be read as date: 'red'"):
        use(["red", "blue"], type="date")


def test_text_features_separate_topics_and_survive_json():
    words = {"money": "loan bank account credit pay", "travel": "flight hotel visa luggage airport"}
    topics = ["money", "travel"] * 100
    texts = [" ".join(GENERATOR.choice(words[topic].split(), 4)) + f" {row}" for row, topic in enumerate(topics)]
    encoder = fitted(x=texts)
    features = encoder.transform(pl.DataFrame({"x": texts}))
    assert encoder.text_columns == ["x"]
    assert np.isclose(np.sqrt((features**2).mean()), 1, atol=0.01)
    money = np.array(topics) == "money"
    between = features[money].mean(0) - features[~money].mean(0)
    assert ((features @ between > 0) == money).mean() > 0.99
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    new = pl.DataFrame({"x": ["pay the loan", None, "", "flight and hotel"]})
    assert np.array_equal(again.transform(new), encoder.transform(new))
    assert np.array_equal(again.transform(new)[1], again.transform(new)[2])
    assert encoder.transform_sparse(new).toarray().any(axis=1).tolist() == [True, False, False, True]
    assert again.uses == encoder.uses


def test_each_column_has_a_line_unless_there_are_many():
    columns = {"a": AMOUNTS, "": AMOUNTS, "c": ["u", "v"] * 100}
    few = fitted(**columns).uses
    assert describe_uses(few) == [("a", "number", ""), ("(no name)", "number", ""), ("c", "category", "2 values")]
    many = fitted(**{f"n{place}": AMOUNTS for place in range(40)}, c=columns["c"]).uses
    assert describe_uses(many) == [("n0 … n39 (40)", "number", ""), ("c", "category", "2 values")]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1.2 kg", "800 g", "2 kg", "950"], [1.2, 0.8, 2, 950]),
        (["12k", "900", "3.4M", "$1bn"], [12e3, 900, 3.4e6, 1e9]),
        (["3 years", "6 months", "1 year"], [3, 0.5, 1]),
        (["5 stars", "1 star"], [5, 1]),
        (["4.3/5", "3/5"], [4.3, 3]),
        (["<0,6", "1,2 mg/l", "≥ 3,5"], [0.6, 1.2, 3.5]),
        (["12 kg", "3 boxes", "4 kg"], [12, None, 4]),
        (["0,125", "0,250"], [0.125, 0.25]),
        (["120/80", "130/85", "140/90"], None),
    ],
)
def test_units_bounds_and_magnitudes(texts, values):
    parsed = parse_numbers(pl.Series(texts))
    if values is None:
        assert parsed.share < 0.5
    else:
        assert parsed.values.to_list() == pytest.approx(values, nan_ok=True)


def test_new_rows_are_read_in_the_unit_of_the_rows_fitted():
    weights = GENERATOR.lognormal(0, 0.5, 200)
    written = [f"{w:.3f} kg" if place % 3 else f"{1000 * w:.0f} g" for place, w in enumerate(weights)]
    encoder = fitted(weight=written)
    assert encoder.uses[0].kind == "number"
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    grams, kilos = (again.transform(pl.DataFrame({"weight": [text] * 2})) for text in ("800 g", "0.8 kg"))
    assert np.allclose(grams, kilos)
    assert grams[0, 0] == pytest.approx((0.8 - weights.mean()) / weights.std(), abs=0.01)


def test_a_word_for_missing_values_may_be_frequent():
    values = [f"{amount}" for amount in AMOUNTS]
    values[::3] = ["prefer not to say"] * len(values[::3])
    assert use(values).kind == "number"
    assert "67 values not understood and taken as missing, such as 'prefer not to say'" in use(values).note
    codes = ["1", "2", "3+", "none"] * 50  # few numbers among words are names
    assert use(codes).kind == "category"


def test_categories_that_differ_in_case_and_spaces_are_one():
    values = ["Monthly", "monthly ", "MONTHLY", "Yearly"] * 50
    encoder = fitted(plan=values)
    assert encoder.uses[0].note == "2 values in 4 spellings"
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert np.array_equal(
        again.transform(pl.DataFrame({"plan": [" monthly", "YEARLY", "other"]})),
        np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    )


@pytest.mark.parametrize(("name", "kind"), [("ean", "left out"), ("Patient-Nr", "left out"), ("paid", "number")])
def test_whole_numbers_that_all_differ_identify_rows_if_their_name_says_so(name, kind):
    numbers = GENERATOR.choice(10**9, 300, replace=False) + 10**12
    assert fit_column(pl.Series(name, numbers))[0].kind == kind
