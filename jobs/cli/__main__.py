"""`python -m exgrpo.jobs.cli` is the `exgrpo` command."""

from exgrpo.jobs.cli.main import main

if __name__ == "__main__":
    main()
