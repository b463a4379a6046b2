"""`python -m bench SUITE`: reads the command line and runs a suite."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench import machine, report
from bench.console import suite as console
from bench.embedded import suite as embedded
from bench.embedded.suite import Workload
from bench.harness import Bench, Options
from bench.served import contenders as served_contenders
from bench.served import suite as served
from bench.spark import suite as spark
from bench.topics import suite as topics

SUITES = {
    "console": console.WORKLOADS,
    "embedded": embedded.WORKLOADS,
    "served": served.WORKLOADS,
    "spark": spark.WORKLOADS,
    "topics": topics.WORKLOADS,
}
RESULTS = Path(__file__).parent / "results"
QUICK_ROUNDS, ROUNDS = 2, 5
QUICK_SCALE = 0.05


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench", description="Virta and its peers, side by side.")
    made.add_argument("suite", choices=sorted(SUITES))
    made.add_argument("--quick", action="store_true", help="less of everything: minutes to seconds")
    made.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="one workload; may be repeated"
    )
    made.add_argument("--list", action="store_true", help="name the workloads and stop")
    made.add_argument("--json", type=Path, metavar="FILE", help="default: bench/results/SUITE.json")
    made.add_argument(
        "--directory",
        type=Path,
        default=RESULTS / "scratch",
        help="where logs are written: choose the file system to measure",
    )
    made.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME",
        help="served: only against this peer; may be repeated",
    )
    made.add_argument(
        "--seconds", type=float, default=15.0, help="served: how long a steady rate is held (default 15)"
    )
    made.add_argument("--rows", type=int, help="of the spark suite: how many there are")
    made.add_argument("--rounds", type=int, help=f"default: {ROUNDS}, quick: {QUICK_ROUNDS}")
    made.add_argument(
        "--scale",
        type=float,
        help=f"this part of the rows and keys of the topics suite; default: 1, quick: {QUICK_SCALE}",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite; 0 also when a target is missed, 1 when a contender broke."""
    command = parser()
    chosen = command.parse_args(arguments)
    workloads = SUITES[chosen.suite]
    if chosen.list:
        print("\n".join(workloads))
        return 0
    unknown = sorted(set(chosen.only) - set(workloads))
    if unknown:
        command.error(f"no workload {', '.join(unknown)}; there are {', '.join(workloads)}")
    if chosen.peer:
        served_contenders.choose(chosen.peer)
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    scale = chosen.scale or (QUICK_SCALE if chosen.quick else 1.0)
    options = Options(
        directory=chosen.directory,
        quick=chosen.quick,
        rounds=rounds,
        scale=scale,
        seconds=chosen.seconds,
        rows=chosen.rows,
    )
    bench = Bench(options, report.show)
    chosen.directory.mkdir(parents=True, exist_ok=True)
    facts = {
        "suite": chosen.suite,
        "quick": chosen.quick,
        "rounds": rounds,
        "scale": scale,
        **machine.facts(chosen.directory),
    }
    print(machine.headline(facts))
    print(f"best of {rounds} interleaved rounds{', quick' * chosen.quick}")
    start = time.monotonic()
    broken = [name for name in chosen.only or workloads if not ran(workloads[name], bench)]
    facts["seconds"] = round(time.monotonic() - start, 1)
    report.summary(bench.outcomes)
    path = chosen.json or RESULTS / f"{chosen.suite}.json"
    report.write_json(path, facts, bench.outcomes)
    print(f"\n{facts['seconds']:.0f} s; all figures of all rounds: {path}")
    if broken:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    with suppress(OSError):
        chosen.directory.rmdir()  # stays when somebody else put something there
    return 1 if bench.failed or broken else 0


def ran(workload: Workload, bench: Bench) -> bool:
    """Run one workload; when it cannot even be set up, say so and let the others run."""
    try:
        workload(bench)
    except Exception:
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
