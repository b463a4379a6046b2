"""Which rows stay: a share of the entities, chosen by a keyed hash, the same in every topic.

The decision is a function of the key and of the value alone. So where `orders.user_id`
and `users.id` are sampled by the same share, exactly the orders of the users that stay
stay; a smaller share is a subset of a larger one.
"""

from __future__ import annotations

import pyarrow as pa

from virta.errors import UsageError
from virta.security.masking.key import MaskingKey
from virta.security.masking.keyed import KeyedHash, mapped, shares


def sample(values: pa.Array, share: float, key: MaskingKey) -> pa.Array:
    """True for each value that stays. Rows without a value go: they belong to nobody."""
    if not 0 < share <= 1:
        raise UsageError(f"a sample is a share above 0 up to 1, not {share!r}")
    digest = KeyedHash(key, "sample")
    chosen = mapped(values, lambda distinct: pa.array(shares(digest(distinct)) < share))
    return chosen.fill_null(False)
