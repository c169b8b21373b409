"""`python -m logboom.cli` is `logboom`."""

from logboom.cli.main import main

if __name__ == "__main__":
    main()
