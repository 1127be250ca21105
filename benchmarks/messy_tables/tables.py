"""Five tables with columns of many kinds, written as in exports, and a known share of wrong labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.random import Generator

from volmin._typing import AnyArray


def churn(random: Generator, rows: int = 3000) -> tuple[pl.DataFrame, AnyArray]:
    """Customers: amounts in dollars, dates, spellings of a contract, notes; two classes that overlap."""
    truth = random.choice(["stayed", "left"], rows, p=[0.7, 0.3])
    left = truth == "left"
    months = random.gamma(3, np.where(left, 5, 14)).round()
    charge = random.lognormal(np.where(left, 4.4, 4.0), 0.25)
    since = np.datetime64("2024-06-30") - (30.4 * months + random.integers(0, 30, rows)).astype(int)
    complaints = ["asked how to cancel the line", "very unhappy about the bill", "is moving abroad", "many outages"]
    others = ["pays by direct debit", "asked for a second card", "thanked for quick help", "upgraded last week"]
    notes = np.where(left & (random.random(rows) < 0.7), random.choice(complaints, rows), random.choice(others, rows))
    contract = np.where(
        left & (random.random(rows) < 0.7), "Month-to-month", random.choice(["One year", "Two year"], rows)
    )
    frame = pl.DataFrame(
        {
            "customerID": _codes(random, "C", rows),
            "Partner": random.choice(["Yes", "No", "yes"], rows),
            "tenure": _some(random, [f"{m:.0f}" for m in months], 0.03, "unknown"),
            "CustomerSince": pl.Series(since.astype("datetime64[D]")).dt.strftime("%d/%m/%Y"),
            "Contract": [
                name.upper() + " " if odd else name
                for name, odd in zip(contract, random.random(rows) < 0.1, strict=True)
            ],
            "MonthlyCharges": [f"${amount:,.2f}" for amount in charge],
            "TotalCharges": _some(random, [f"{amount:,.2f}" for amount in charge * np.maximum(months, 1)], 0.01, " "),
            "Discount": [f"{share}%" for share in random.integers(0, 30, rows)],
            "Country": ["US"] * rows,
            "note": [
                f"{note}, ref {number}" for note, number in zip(notes, random.integers(0, 10**5, rows), strict=True)
            ],
        }
    )
    return frame, truth


def medical(random: Generator, rows: int = 1500) -> tuple[pl.DataFrame, AnyArray]:
    """Records of a German laboratory: decimal commas, bounds, units, words for missing values."""
    truth = random.choice(["negative", "suspicious", "positive"], rows, p=[0.55, 0.15, 0.3])
    level = np.array([["negative", "suspicious", "positive"].index(name) for name in truth])
    protein = np.exp(random.normal(0.5 + 1.4 * level, 0.5))
    admitted = _times("2023-01-01", 3600 * random.integers(0, 17000, rows))
    frame = pl.DataFrame(
        {
            "Patient-Nr": _codes(random, "P", rows),
            "Alter": random.normal(50 + 6 * level, 12).clip(18, 95).round(),
            "Geschlecht": random.choice(["m", "w", "M", "W"], rows),
            "Aufnahme": admitted.dt.strftime("%d.%m.%Y %H:%M"),
            "CRP": _some(random, ["<0,6" if p < 0.9 else _comma(p, 1) + " mg/l" for p in protein], 0.06, "k.A."),
            "Hb": _some(random, [_comma(h, 1) for h in random.normal(14 - 1.5 * level, 0.9)], 0.05, "?"),
            "Raucher": np.where(random.random(rows) < 0.2 + 0.2 * level, "ja", "nein"),
            "Fieber": [_comma(t, 1) + " °C" for t in random.normal(36.7 + 0.7 * level, 0.4)],
            "Kosten": [_comma(c, 2) + " €" for c in random.lognormal(7 + 0.2 * level, 0.6)],
            "Bemerkung": pl.Series([None] * rows, dtype=pl.String),
        }
    )
    return frame, truth


def tickets(random: Generator, rows: int = 2500) -> tuple[pl.DataFrame, AnyArray]:
    """Support tickets: a text of many lengths, addresses, a rising number."""
    words = {
        "billing": ["invoice", "charge", "refund", "payment", "card", "billed", "amount", "price", "receipt"],
        "technical": ["error", "crash", "login", "screen", "freeze", "update", "bug", "install", "timeout"],
        "shipping": ["package", "delivery", "courier", "tracking", "delayed", "parcel", "lost", "arrived"],
        "account": ["password", "username", "profile", "email", "verify", "locked", "delete", "settings"],
    }
    filler = [
        "please",
        "help",
        "me",
        "I",
        "have",
        "the",
        "a",
        "my",
        "with",
        "since",
        "and",
        "it",
        "is",
        "not",
        "thanks",
    ]
    truth = random.choice(list(words), rows, p=[0.35, 0.3, 0.2, 0.15])
    bodies = []
    for name in truth:
        own = random.random(random.integers(5, 30)) < 0.3
        bodies.append(" ".join(random.choice(words[name]) if told else random.choice(filler) for told in own))
    created = _times("2024-01-01", 60 * np.sort(random.integers(0, 500_000, rows)))
    frame = pl.DataFrame(
        {
            "ticket_id": np.arange(rows) + 48211,
            "created": created.dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "body": bodies,
            "priority": random.choice(["low", "normal", "high", "High"], rows),
            "channel": random.choice(["mail", "chat", "phone"], rows),
            "email": [f"user{number}@example.org" for number in random.permutation(10**6)[:rows]],
            "satisfaction": random.choice(["1", "2", "3", "4", "5", "n/a"], rows),
        }
    )
    return frame, truth


def sensors(random: Generator, rows: int = 4000) -> tuple[pl.DataFrame, AnyArray]:
    """Readings of pumps: times, units, error codes, impossible values, gaps."""
    truth = random.choice(["ok", "bearing", "imbalance", "leak"], rows, p=[0.6, 0.15, 0.15, 0.1])
    bearing, imbalance, leak = (truth == name for name in ("bearing", "imbalance", "leak"))
    vibration = np.exp(random.normal(np.select([bearing, imbalance], [1.6, 1.1], 0.2), 0.25))
    vibration[random.random(rows) < 0.005] = 1e9
    times = _times("2024-03-01", np.sort(random.integers(0, 30 * 86400, rows)))
    flow = random.normal(np.where(leak, 30, 42), 3.5).round(2)
    frame = pl.DataFrame(
        {
            "timestamp": times.dt.strftime("%Y-%m-%d %H:%M:%S"),
            "device": [f"pump-{number:02d}" for number in random.integers(1, 25, rows)],
            "firmware": ["v2.1.0"] * rows,
            "vibration": vibration.round(3),
            "temp": _some(random, [f"{t:.1f} °C" for t in random.normal(np.where(bearing, 78, 65), 4)], 0.02, "ERR"),
            "pressure": [f"{p:.2f} bar" for p in random.normal(np.where(leak, 3.1, 5.2), 0.45)],
            "rpm": [f"{speed:,.0f}" for speed in random.normal(1480, 8, rows)],
            "phase": np.where(imbalance, random.normal(90, 15, rows), random.uniform(0, 360, rows)).round(1),
            "flow": pl.Series(flow).set(pl.Series(random.random(rows) < 0.07), None),
            "alarm": random.choice(["on", "off"], rows, p=[0.1, 0.9]),
        }
    )
    return frame, truth


def catalogue(random: Generator, rows: int = 2000) -> tuple[pl.DataFrame, AnyArray]:
    """Products: titles, prices, weights in grams and kilograms, ratings, stock."""
    kinds: dict[str, tuple[list[str], float, float]] = {
        "Shoes": (["sneaker", "boot", "sandal", "loafer", "runner", "heel"], 70, 900),
        "Electronics": (["headphones", "charger", "speaker", "keyboard", "mouse", "cable"], 60, 400),
        "Kitchen": (["pan", "knife", "kettle", "mixer", "board", "bowl"], 35, 1100),
        "Books": (["novel", "atlas", "guide", "cookbook", "biography", "stories"], 18, 450),
        "Toys": (["puzzle", "robot", "doll", "blocks", "train", "game"], 25, 500),
    }
    other = ["classic", "new", "red", "blue", "compact", "large", "premium", "light", "pro", "mini", "original"]
    truth = random.choice(list(kinds), rows, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    brands = [f"{random.choice(['Nor', 'Ala', 'Vex', 'Kim'])}{name[:2].lower()}" for name in truth]
    things = [
        random.choice(kinds[name][0]) if told else "item"
        for name, told in zip(truth, random.random(rows) < 0.85, strict=True)
    ]
    weights = [random.normal(kinds[name][2], 120) for name in truth]
    stocked = _times("2022-01-01", 86400 * random.integers(0, 900, rows))
    frame = pl.DataFrame(
        {
            "sku": _codes(random, "SKU", rows),
            "ean": random.choice(10**9, rows, replace=False) + 4 * 10**12,
            "title": [
                f"{brand} {random.choice(other)} {thing} {random.integers(1, 999)}"
                for brand, thing in zip(brands, things, strict=True)
            ],
            "brand": brands,
            "price": [f"{random.lognormal(np.log(kinds[name][1]), 0.35):.2f} EUR" for name in truth],
            "weight": [
                f"{w:.0f} g" if grams else f"{w / 1000:.2f} kg"
                for w, grams in zip(weights, random.random(rows) < 0.7, strict=True)
            ],
            "in_stock": random.choice(["TRUE", "FALSE", ""], rows, p=[0.7, 0.25, 0.05]),
            "rating": [f"{stars:.1f}/5" for stars in random.normal(4, 0.4, rows).clip(1, 5)],
            "added": stocked.dt.strftime("%b %d, %Y"),
            "url": [f"https://shop.example/p/{number}" for number in random.permutation(10**7)[:rows]],
        }
    )
    return frame, truth


TABLES: dict[str, tuple[Callable[..., tuple[pl.DataFrame, AnyArray]], float]] = {
    "churn": (churn, 0.08),
    "medical": (medical, 0.12),
    "tickets": (tickets, 0.15),
    "sensors": (sensors, 0.10),
    "catalogue": (catalogue, 0.10),
}
"""Tables with their shares of wrong labels."""


def table(name: str, seed: int = 0) -> pl.DataFrame:
    """A table with its given labels and the true ones in the columns ``label`` and ``clean``."""
    random = np.random.default_rng([seed, *name.encode()])
    make, rate = TABLES[name]
    frame, truth = make(random)
    classes, codes = np.unique(truth, return_inverse=True)
    shift = np.where(random.random(len(truth)) < rate, random.integers(1, len(classes), len(truth)), 0)
    given = classes[(codes + shift) % len(classes)]
    return frame.with_columns(label=pl.Series(given), clean=pl.Series(truth))


def _some(random: Generator, texts: list[str], share: float, other: str) -> list[str]:
    """Texts of which some are replaced by a word."""
    return [
        other if replaced else text for text, replaced in zip(texts, random.random(len(texts)) < share, strict=True)
    ]


def _codes(random: Generator, start: str, rows: int) -> list[str]:
    return [f"{start}{number}" for number in random.permutation(10 * rows)[:rows] + 10**6]


def _times(start: str, seconds: AnyArray) -> pl.Series:
    return pl.Series(np.datetime64(start, "ms") + 1000 * seconds)


def _comma(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))
