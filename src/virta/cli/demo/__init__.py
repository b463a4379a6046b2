"""`virta demo`: a log with live topics, broker, console and a masked copy, with one command."""
