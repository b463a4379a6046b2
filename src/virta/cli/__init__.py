"""The `virta` command. `main` is its front door; each command has a module of its own."""
