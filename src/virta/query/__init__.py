"""SQL over topics: DuckDB in this process, reading snapshots. It comes with the extra `virta[sql]`."""
