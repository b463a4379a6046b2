"""The contenders: one file each, all behind the interface in `store.py`."""
