"""Where the demo keeps what it makes: one folder, which is the user's to keep or to throw away.

events/          the log: orders, sensors, life
lower/           the masked copy, a log of a lower environment
lake/orders/     orders as Parquet files
pipeline.toml    what makes the last two
config/          contexts @demo and @lower, for the demo alone
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from virta.errors import UsageError


@dataclass(frozen=True, slots=True)
class Places:
    """Every path of the demo."""

    root: Path

    @classmethod
    def chosen(cls, directory: Path | None) -> Places:
        """A temporary folder, or the one that was named, which has to be new or empty."""
        if directory is None:
            return cls(Path(tempfile.mkdtemp(prefix="virta-demo-")))
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(
                f"{directory} is there already", hint="give the demo a directory that is new or empty"
            )
        root = directory.absolute()
        root.mkdir(parents=True, exist_ok=True)
        return cls(root)

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def lower(self) -> Path:
        return self.root / "lower"

    @property
    def lake(self) -> Path:
        return self.root / "lake" / "orders"

    @property
    def pipeline(self) -> Path:
        return self.root / "pipeline.toml"

    @property
    def masking_key(self) -> Path:
        return self.root / "masking.key"

    @property
    def signing_key(self) -> Path:
        return self.root / "signing.pem"

    @property
    def public_key(self) -> Path:
        return self.root / "signing.pub"

    @property
    def statement(self) -> Path:
        return self.root / "statement.json"

    def environment(self) -> dict[str, str]:
        """For the demo's own commands: the user's contexts stay out of it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VIRTA_")}
        return {**kept, "XDG_CONFIG_HOME": str(self.root / "config")}
