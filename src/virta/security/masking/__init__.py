"""Masking: columns of Arrow data made unreadable by policy. Pure: opens no log, writes no file.

    policy = MaskPolicy.of([{"columns": ["email"], "mask": "email"}, {"columns": ["*"], "mask": "keep"}])
    plan = policy.plan("users", schema, MaskingKey.of("a secret of sixteen bytes or more"))
    masked = plan.apply(batch)

`key` the secret, `keyed` the hash over arrays, `permutation` pseudonyms that keep their
space, `methods`, `pseudonyms` and `shifting` what a column can become, `policy` which
column becomes what, `plan` a policy fitted to one schema, `sampling` which rows stay.
"""

from virta.security.masking.key import MaskingKey
from virta.security.masking.plan import MaskingPlan
from virta.security.masking.policy import MaskPolicy, MaskRule
from virta.security.masking.sampling import sample

__all__ = ["MaskPolicy", "MaskRule", "MaskingKey", "MaskingPlan", "sample"]
