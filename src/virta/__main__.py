"""`python -m virta`: the same as the `virta` command."""

from virta.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
