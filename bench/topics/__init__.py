"""Topics as tables: queries over what a log holds, beside databases that hold the same rows."""
