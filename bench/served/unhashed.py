"""A broker whose chain is not hashed: `python -m bench.served.unhashed serve …`. For `chain` alone.

What it writes is not a log that anybody could read.
"""

from __future__ import annotations

from bench.embedded.chain import no_hashing
from virta.cli.main import main

if __name__ == "__main__":
    with no_hashing():
        raise SystemExit(main())
