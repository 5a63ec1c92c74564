"""`python -m jobs.worker RUN ATTEMPT` carries out one attempt at a job."""

import sys

from jobs.worker.worker import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
