"""`python -m vitscope` is `vitscope`."""

from vitscope.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
