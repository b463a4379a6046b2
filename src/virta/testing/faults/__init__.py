"""Fault campaigns: kill it, cut its power, starve it, damage it, and check what is left."""
