"""The console in a real browser: how fast rows become pixels, and what that costs."""
