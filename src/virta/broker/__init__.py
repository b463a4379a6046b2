"""The broker: one log directory, served to many clients over TCP. It comes with the extra `virta[serve]`."""
