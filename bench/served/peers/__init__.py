"""One served contender per file, behind `contract.py`."""
