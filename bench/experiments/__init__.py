"""Forks in the road, each decided by a measurement that anyone can run again."""
