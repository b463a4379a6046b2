"""What every kind of log must do, as tests that every backend inherits.

    from virta.testing.conformance import LogConformance

    class TestMyLog(LogConformance):
        @pytest.fixture
        def open_log(self, tmp_path):
            return lambda: virta.open(tmp_path / "events")

`open_log` opens the same log again with every call, empty at first; the suite closes
what it opened. The suite knows the interface only: no file, no process, no thread of
the log is looked at. It needs pytest, pandas, Polars and DuckDB.
"""

from virta.testing.conformance.appending import AppendConformance as AppendConformance
from virta.testing.conformance.base import Conformance as Conformance
from virta.testing.conformance.erasing import ErasingConformance as ErasingConformance
from virta.testing.conformance.events import EventConformance as EventConformance
from virta.testing.conformance.partitions import PartitionConformance as PartitionConformance
from virta.testing.conformance.reading import ReadConformance as ReadConformance
from virta.testing.conformance.rows import RowConformance as RowConformance
from virta.testing.conformance.spread import SpreadConformance as SpreadConformance
from virta.testing.conformance.tables import TableConformance as TableConformance
from virta.testing.conformance.tailing import TailConformance as TailConformance
from virta.testing.conformance.topics import TopicConformance as TopicConformance
from virta.testing.conformance.writers import WriterConformance as WriterConformance


class LogConformance(
    TopicConformance,
    RowConformance,
    AppendConformance,
    WriterConformance,
    ReadConformance,
    TailConformance,
    PartitionConformance,
    SpreadConformance,
    TableConformance,
    EventConformance,
    ErasingConformance,
):
    """All of it."""
