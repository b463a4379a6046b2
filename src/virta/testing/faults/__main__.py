"""`./run faults`: run the campaigns, tell what they did, and fail when anything was violated."""

from __future__ import annotations

import argparse
import importlib
import random
import sys

# name → module, and its share of the time when all are run
CAMPAIGNS = {
    "kill": ("virta.testing.faults.kill", 0.2),
    "power": ("virta.testing.faults.powerloss", 0.1),
    "errors": ("virta.testing.faults.errors", 0.1),
    "mutate": ("virta.testing.faults.mutate", 0.1),
    "groups": ("virta.testing.faults.groups", 0.1),
    "pipelines": ("virta.testing.faults.pipelines", 0.1),
    "loop": ("virta.testing.faults.loop", 0.05),
    "network": ("virta.testing.faults.network", 0.2),
    "hostile": ("virta.testing.faults.hostile", 0.1),
    "spark": ("virta.testing.faults.spark_copies", 0.1),
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run faults", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=None, help="what happens follows from it (default: random)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for all campaigns together (default: 60)"
    )
    parser.add_argument("--only", choices=list(CAMPAIGNS), help="one campaign")
    options = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    chosen = [options.only] if options.only else list(CAMPAIGNS)
    whole = sum(CAMPAIGNS[name][1] for name in chosen)
    print(f"seed {seed}, {options.seconds:g} seconds")
    failed = False
    for name in chosen:
        module, share = CAMPAIGNS[name]
        print(f"{name}:", flush=True)
        report = importlib.import_module(module).run(seed, options.seconds * share / whole)
        print("\n".join(report.lines()), flush=True)
        failed |= not report.ok
    if failed:
        print(f"VIOLATIONS; again: ./run faults --seed {seed} --seconds {options.seconds:g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
