"""The result of an audit of several annotators as text."""

from __future__ import annotations

from volmin.auditing.crowd.result import CrowdResult, Profile
from volmin.formatting import terminal_safe

MOST_LINES = 12
"""Number of annotators that the table shows."""


def summary(result: CrowdResult) -> str:
    """Noise rate, annotators and findings in a few lines."""
    lines = [headline(result), "", *_table(result), ""]
    lines += [f"{finding.code}: {finding.text}" for finding in result.findings]
    return terminal_safe("\n".join(lines))


def headline(result: CrowdResult) -> str:
    """Numbers of answers, annotators and items, and the noise rate with its interval."""
    low, high = result.noise_range
    if result.grouped:
        counted = f"{len(result):,} labels of {len(result.names):,} groups"
    else:
        counted = f"{len(result.answers):,} answers of {len(result.names):,} annotators to {len(result):,} items"
    wrong = f"About {result.noise_rate:.1%} of them are wrong ({result.level:.0%} interval {low:.1%} to {high:.1%})."
    return f"{counted} in {len(result.classes)} classes. {wrong}"


def confusions(result: CrowdResult, profile: Profile) -> str:
    """The most frequent wrong answers of an annotator."""
    return ", ".join(
        f"{_short(result.classes[given])} for {_short(result.classes[true])} ({share:.1%})"
        for given, true, share in profile.confusions
    )


def _table(result: CrowdResult) -> list[str]:
    profiles = result.profiles()
    # The least accurate and the most accurate ones.
    shown = profiles if len(profiles) <= MOST_LINES else profiles[: MOST_LINES // 2] + profiles[-MOST_LINES // 2 :]
    title = "group" if result.grouped else "annotator"
    width = max(len(title), *(len(_short(profile.name)) for profile in shown))
    lines = [f"{title:<{width}}  answers  agrees  wrong  interval        most frequent mistakes"]
    for number, profile in enumerate(shown):
        if len(shown) < len(profiles) and number == MOST_LINES // 2:
            lines.append(f"… {len(profiles) - len(shown):,} more …")
        start = f"{_short(profile.name):<{width}}  {profile.answers:>7,}"
        if not profile.answers:
            lines.append(f"{start}  no answer")
            continue
        interval = f"{profile.low:.1%} to {profile.high:.1%}"
        mistakes = confusions(result, profile)
        lines.append(
            f"{start}  {profile.agreement:>6.1%}  {profile.noise_rate:>5.1%}  {interval:<14}  {mistakes}".rstrip()
        )
    return lines


def _short(label: object, most: int = 24) -> str:
    text = " ".join(str(label).split())
    return text if len(text) <= most else text[: most - 1] + "…"
