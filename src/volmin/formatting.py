"""Text for people: durations, shares and counts, and text that is safe to print on a terminal."""

from __future__ import annotations


def terminal_safe(text: str) -> str:
    """A text whose control characters are spelled out, so that labels and file names cannot control the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def duration(seconds: float) -> str:
    """Seconds as text: 45 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent: 8.3%."""
    return f"{share:.{digits}%}"


def count(number: float) -> str:
    """A number of things, rounded, with thousands separators: 1,797."""
    return f"{number:,.0f}"
