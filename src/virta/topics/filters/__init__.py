"""Filters: the small SQL that `where` takes.

`tokens` cuts text into words, `syntax` says what an expression is, `parser` makes one of
the words, `binding` gives it types and Arrow kernels, `pruning` rules out blocks by their
statistics, and `filter` is what readers hold.
"""

from virta.topics.filters.filter import Filter, parse_filter

__all__ = ["Filter", "parse_filter"]
