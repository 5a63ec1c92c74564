"""`python -m jobs.worker RUN ATTEMPT` runs one attempt of a job."""

import sys

from jobs.worker.worker import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
