"""What a run says: plain tables for people, one JSON file for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.harness import Metric, Outcome, Sample, Target, result

OURS = "virta"


def show(outcome: Outcome) -> None:
    """Print one contest as a table, with what DESIGN asks of it underneath."""
    contest, best = outcome.contest, outcome.best()
    print(f"\n{contest.title} [{contest.workload}]\n  {contest.conditions}")
    if best:
        _print_rows(_table(best))
    for name, reason in outcome.absent.items():
        print(f"  {name}: not here ({reason})")
    for name, reason in outcome.errors.items():
        print(f"  {name}: FAILED ({reason})")
    for note in contest.notes:
        print(f"  note: {note}")
    for target in contest.targets:
        print(f"  {_verdict(target, best)}")


def summary(outcomes: Sequence[Outcome]) -> None:
    """Print all targets of the run in one list."""
    print("\nTargets")
    for outcome in outcomes:
        if outcome.contest.targets:
            print(f"  {outcome.contest.title}")
        for target in outcome.contest.targets:
            print(f"    {_verdict(target, outcome.best())}")


def write_json(path: Path, facts: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write the machine's facts and every figure of every round."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {**facts, "results": [result(outcome) for outcome in outcomes]}
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _table(best: Mapping[str, Mapping[Metric, float]]) -> list[list[str]]:
    metrics = list(dict.fromkeys(metric for figures in best.values() for metric in figures))
    ours = best.get(OURS, {})
    rows = [["", *(metric.name for metric in metrics), *(["virta is"] if ours else [])]]
    for name, figures in best.items():
        cells = [_figure(figures.get(metric)) for metric in metrics]
        rows.append([name, *cells, *([_ratios(name, ours, figures)] if ours else [])])
    return rows


def _ratios(name: str, ours: Sample, theirs: Sample) -> str:
    """How many times better we are in each metric, in the order of the columns."""
    if name == OURS:
        return ""
    shared = [metric for metric in ours if metric in theirs]
    return ", ".join(f"{m.times_better(ours[m], theirs[m]):.2f}×" for m in shared)


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = (
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join([first, *rest]).rstrip())


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _verdict(target: Target, best: Mapping[str, Sample]) -> str:
    judged = target.judge(best)
    if judged is None:
        return f"[  ?   ] {target.text()}: not measured"
    value, reached = judged
    unit = "×" if target.against is not None else f" {target.metric.name}"
    mark = "  ok  " if reached else "MISSED"
    return f"[{mark}] {target.text()}: {_figure(value)}{unit}"
