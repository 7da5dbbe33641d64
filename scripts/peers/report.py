"""What was measured, as a table and as JSON.

>>> percentile([4, 1, 3, 2], 50), percentile(range(1, 101), 99), percentile([7], 99)
(2, 99, 7)
>>> rate = "run_per_second"
>>> seen = [Measurement(rate, "hourhand", 1, 20.0, "a"), Measurement(rate, "a", 1, 10.0, "a"),
...         Measurement(rate, "hourhand", 1, 99.0, "b"), Measurement(rate, "hourhand", 2, 40.0, "a"),
...         Measurement(rate, "a", 2, 5.0, "a"), Measurement(rate, "hourhand", 3, 7.0, "a")]
>>> ratios(seen, rate, "a"), ratios(seen, rate, "b")
([2.0, 8.0], [])
>>> late = [Measurement("late_p50_ms", "hourhand", 1, 0.5), Measurement("late_p50_ms", "b", 1, 50.0)]
>>> ratios(late, "late_p50_ms", "b")
[0.01]
>>> print(table(seen, ["a", "b"]))
<BLANKLINE>
jobs a second, from the first one's beginning until all are settled
  hourhand                   30  (7 to 99)
  a                           8  (5 to 10)                 hourhand is at 5.00 times that
  b                           -
"""

import math
import statistics
from dataclasses import dataclass

OURS = "hourhand"

# Name in JSON, what it is, and how a value is written.
FIGURES = [
    ("run_per_second", "jobs a second, from the first one's beginning until all are settled", "{:,.0f}"),
    ("single_per_second", "enqueued a second, one at a time, each awaited", "{:,.0f}"),
    ("bulk_per_second", "enqueued a second in bulk", "{:,.0f}"),
    ("late_p50_ms", "lateness on idle workers, p50, ms (less is better)", "{:,.2f}"),
    ("late_p99_ms", "lateness on idle workers, p99, ms (less is better)", "{:,.2f}"),
    ("late_max_ms", "lateness on idle workers, the latest job, ms (less is better)", "{:,.2f}"),
    ("scheduled_bytes", "Redis memory of a scheduled job, bytes (less is better)", "{:,.0f}"),
    ("worker_mib", "resident memory of the workers at its peak in the run, MiB (less is better)", "{:,.0f}"),
]


@dataclass
class Measurement:
    figure: str
    queue: str
    round: int
    value: float
    # The peer that it was measured right beside; none when one measurement of Hourhand stands beside all peers of its round.
    beside: str | None = None


def percentile(values: list[float], part: float) -> float:
    """The smallest value that so many in a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * part / 100) - 1)]


def ratios(measured: list[Measurement], figure: str, peer: str) -> list[float]:
    """Hourhand's value over the peer's, for each round that has both."""
    found = [one for one in measured if one.figure == figure]
    return [ours.value / theirs.value for theirs in found if theirs.queue == peer
            for ours in found if ours.queue == OURS and ours.round == theirs.round and ours.beside in (None, peer)]


def summary(measured: list[Measurement], peers: list[str]) -> list[dict]:
    """Medians over the rounds, with the lowest and the highest value."""
    rows = []
    for figure, _, _ in FIGURES:
        for queue in (OURS, *peers):
            values = [one.value for one in measured if one.figure == figure and one.queue == queue]
            beside = ratios(measured, figure, queue) if queue != OURS else []
            rows.append({
                "figure": figure, "queue": queue, "measurements": len(values),
                "median": statistics.median(values) if values else None,
                "lowest": min(values, default=None), "highest": max(values, default=None),
                "hourhand_to_this": statistics.median(beside) if beside else None,
            })
    return rows


def table(measured: list[Measurement], peers: list[str]) -> str:
    """The figures of which there is anything, each with a line a queue."""
    lines = []
    rows = summary(measured, peers)
    for figure, title, form in FIGURES:
        ours = [row for row in rows if row["figure"] == figure]
        if not any(row["measurements"] for row in ours):
            continue
        lines += ["", title]
        for row in ours:
            if not row["measurements"]:
                lines.append(f"  {row['queue']:<14}{'-':>15}")
                continue
            spread = f"({form.format(row['lowest'])} to {form.format(row['highest'])})" if row["measurements"] > 1 else ""
            beside = row["hourhand_to_this"]
            told = f"hourhand is at {beside:.{2 if beside >= 0.1 else 4}f} times that" if beside is not None else ""
            lines.append(f"  {row['queue']:<14}{form.format(row['median']):>15}  {spread:<26}{told}".rstrip())
    return "\n".join(lines)
