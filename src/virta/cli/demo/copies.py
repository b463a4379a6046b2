"""The demo's last step: one pipeline on local Spark, with a masked copy and Parquet files.

What it runs are the commands anybody would type, on a file that stays there to look at.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import virta
from virta.cli.demo.places import Places
from virta.cli.demo.stage import Stage
from virta.cli.text import count, span

_PIPELINE = """\
# A masked copy of the orders for a lower environment, and the orders as Parquet.
#   virta pipeline check|preview|run|show pipeline.toml
name = "demo"
state = "pipeline-state"

[demote]
from = "@demo"                       # a context: a log, and how high its environment stands
to = "@lower"
topics = ["orders"]
key = { file = "masking.key" }       # never leaves the upper environment
sign = { file = "signing.pem" }      # the statement says what was done, and can be checked
statement = "statement.json"

[[demote.mask]]                      # a column that no rule names stops the run
columns = ["user"]
mask = "name"

[[demote.mask]]
columns = ["email"]
mask = "email"

[[demote.mask]]
columns = ["id", "amount", "country"]
mask = "keep"

[[flow]]
name = "lake"
source = { topic = "orders", log = "@demo" }
sink = { parquet = "lake/orders", partition_by = ["country"] }
"""


@dataclass(frozen=True, slots=True)
class Copies:
    """Makes the copies, shows their report, and looks whether they are what they should be."""

    stage: Stage
    places: Places

    def play(self, *, engine: str = "spark") -> None:
        if engine == "spark" and importlib.util.find_spec("pyspark") is None:
            engine = "local"
            self.stage.fact("spark", "not installed (pip install 'virta[spark]'): the same without it")
        self.stage.step(
            "A masked copy and Parquet files, on local Spark"
            if engine == "spark"
            else "A masked copy and Parquet files",
            "virta pipeline run pipeline.toml",
        )
        self._prepare()
        begun = time.perf_counter()
        done = self._virta("pipeline", "run", "pipeline.toml", "--engine", engine, "-o", "json")
        if done.returncode:
            self.stage.lines(done.stderr.strip().splitlines()[-3:])
            self.stage.check(False, "the pipeline ran")
            return
        flows = {each["flow"]: each for each in json.loads(done.stdout)}
        starting = "Spark" if engine == "spark" else "Python"
        taken = f"{span(time.perf_counter() - begun)}, the start of {starting} included"
        self._report(list(flows.values()), taken)
        self._compare(flows["orders"]["rows"], flows["lake"]["rows"])

    def _prepare(self) -> None:
        self.places.pipeline.write_text(_PIPELINE, encoding="utf-8")
        self._must("context", "add", "demo", str(self.places.events), "--environment", "prod", "-q")
        self._must("context", "add", "lower", str(self.places.lower), "--environment", "dev", "-q")
        self._must("pipeline", "key", str(self.places.masking_key), "-q")
        made = self._must("pipeline", "key", "--signing", str(self.places.signing_key))
        self.places.public_key.write_text(made.stdout, encoding="utf-8")

    def _report(self, flows: list[dict[str, Any]], taken: str) -> None:
        names = ("flow", "source", "sink", "rows")
        shown = [[each["flow"], each["source"], each["sink"], count(each["rows"])] for each in flows]
        self.stage.table(
            names, [[str(cell).replace(f"{self.places.root}/", "") for cell in row] for row in shown]
        )
        rows = sum(each["rows"] for each in flows)
        self.stage.fact("took", f"{taken}: {count(rows, 'row')}")

    def _compare(self, masked: int, filed: int) -> None:
        with virta.open(self.places.events, create=False) as log, virta.open(self.places.lower) as lower:
            above, below = log.topic("orders"), lower.topic("orders")
            before = above[1:2].columns("user", "email", "amount").to_arrow()
            after = below[1:2].columns("user", "email", "amount").to_arrow()
            self.stage.table(
                ("", "user", "email", "amount"),
                [["before", *before.to_pylist()[0].values()], ["after", *after.to_pylist()[0].values()]],
            )
            known = set(above[:].columns("email").to_arrow().column("email").to_pylist()) - {""}
            found = known & set(below[:].columns("email").to_arrow().column("email").to_pylist())
            self.stage.check(
                below.next_offset == masked > 0 and not found,
                f"none of {count(len(known))} e-mail addresses is in the copy",
            )
        import pyarrow.dataset as dataset  # slow to import

        files = dataset.dataset(self.places.lake / "current", format="parquet", partitioning="hive")
        self.stage.check(
            files.count_rows() == filed > 0, f"{count(files.count_rows(), 'row')} in Parquet files"
        )
        words = (
            "statement.json",
            "--public-key",
            "signing.pub",
            "--source",
            "@demo",
            "--target",
            "@lower",
            "-o",
            "json",
        )
        checked = self._virta("pipeline", "statement", *words)
        self.stage.check(
            checked.returncode == 0, "the signed statement holds: source, policy, every byte of the copy"
        )

    def _must(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = self._virta(*words)
        if done.returncode:
            raise virta.VirtaError(f"`virta {words[0]} {words[1]}` failed: {done.stderr.strip()}")
        return done

    def _virta(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "virta", *words],
            cwd=self.places.root,
            env=self.places.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
