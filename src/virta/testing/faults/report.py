"""What a campaign did and found, told plainly."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

# Enough to see a pattern; the rest of a long list helps nobody.
_SHOWN = 12


@dataclass(slots=True)
class Report:
    name: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    skipped: str = ""
    started: float = field(default_factory=time.monotonic)

    def violated(self, what: str, replay: str) -> None:
        """Something that must not be was seen; `replay` says how to see it again."""
        self.violations.append(f"{what}\n      again: {replay}")

    @property
    def ok(self) -> bool:
        return not self.violations

    def lines(self) -> list[str]:
        if self.skipped:
            return [f"  skipped: {self.skipped}"]
        seconds = time.monotonic() - self.started
        said = ", ".join(f"{count:,} {what}" for what, count in self.counts.items())
        found = [f"  {said} in {seconds:.1f} s"]
        found += [f"    VIOLATION {violation}" for violation in self.violations[:_SHOWN]]
        if len(self.violations) > _SHOWN:
            found.append(f"    and {len(self.violations) - _SHOWN} more")
        found.append("  ok" if self.ok else f"  FAILED: {len(self.violations)} violations")
        return found
