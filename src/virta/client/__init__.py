"""The other side of the wire: the same log, served by a broker. It comes with the extra `virta[remote]`."""
