"""Virta's broker and its peers, over TCP."""
