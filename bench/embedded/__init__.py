"""Workloads of the embedded log: DESIGN section 10, one file per group."""
