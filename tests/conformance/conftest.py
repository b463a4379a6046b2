"""Asserts in the shipped suite explain themselves as those in tests do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("virta.testing.conformance")
