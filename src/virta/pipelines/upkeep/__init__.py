"""The heavy work over whole topics on Spark: verification, compaction, erasure.

    from virta.pipelines.upkeep import Upkeep

    with Upkeep("./events", master="spark://…") as upkeep:
        upkeep.verify("orders").ok
        upkeep.compact("users", force=True)
        upkeep.erase("orders", where="user = 'ada'")

What is decided, and what takes effect, is decided and done here, by the same code as the
steward's: plans come from manifests and chain files, and rewritten segments are put in force
through the one mechanism there is, with the same receipts. Only what reads, hashes and writes
whole segments is sent to Spark's workers, which see the log's directory as this process does.
`pieces` is what travels, `tasks` runs it, `verification`, `compaction`, `erasure` are the work.
"""

from virta.pipelines.upkeep.upkeep import Upkeep

__all__ = ["Upkeep"]
