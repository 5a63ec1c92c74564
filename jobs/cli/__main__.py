"""`python -m jobs.cli` is the `exgrpo` command."""

from jobs.cli.main import main

if __name__ == "__main__":
    main()
