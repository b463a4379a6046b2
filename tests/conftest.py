"""What all tests share: how hard Hypothesis tries.

`dev` is quick, for the inner loop; `ci` looks longer. `CI` in the environment
chooses, and `--hypothesis-profile` overrules it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Building Arrow data and syncing files is slow at first and on busy machines, so no
# single example is held to a deadline.
settings.register_profile("dev", max_examples=30, deadline=None)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A context that this machine's user has in use is not the tests' business.
os.environ["XDG_CONFIG_HOME"] = "/nowhere/virta-tests"
os.environ.pop("VIRTA_CONTEXT", None)

settings.load_profile("ci" if os.environ.get("CI") else "dev")
