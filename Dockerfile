# Three images. `workbench`: pages, supervisor and the embedded engine. `viewer`: the pages alone, without PyTorch.
# `engine`: the workbench with verl's environment for NVIDIA GPUs (CUDA 13.0). The program belongs to root and is never
# written; everything that changes is in /srv/state, and the rest of the file system may be read-only. compose.yaml runs
# them; docs/deployment.md says how.
#   docker build --target workbench --build-arg PIP_EXTRA_INDEX_URL=... -t exgrpo-workbench .
# The argument names a further package index: PyTorch's index of CPU builds keeps CUDA's 4 GB out of `workbench`.
FROM python:3.12-slim-bookworm AS program

# Debian's mirrors keep only the newest version of a package, so a pinned one breaks the build.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make && rm -rf /var/lib/apt/lists/*

WORKDIR /srv/exgrpo
COPY . .
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_NO_CACHE_DIR=1
ENV PATH=/srv/exgrpo/.venv/bin:$PATH \
    HOME=/srv/state/home \
    USER=exgrpo \
    EXGRPO_RUNS_ROOT=/srv/state/runs \
    EXGRPO_CACHE_DIR=/srv/state/cache \
    HF_HOME=/srv/state/models \
    EXGRPO_STOP_RUNS=1 \
    PYTHONDONTWRITEBYTECODE=1
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD \
    ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["exgrpo", "up", "--no-browser"]


FROM program AS viewer

RUN make install slim state-folders LOCKED=1 VIEWER=1 STATE=/srv/state OWNER=1000
USER 1000:1000
VOLUME /srv/state


FROM program AS workbench

RUN make install slim state-folders LOCKED=1 STATE=/srv/state OWNER=1000
USER 1000:1000
VOLUME /srv/state


FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS engine

# Ubuntu's mirrors keep only the newest version of a package, so a pinned one breaks the build.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make python3.12 python3.12-dev python3.12-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /srv/exgrpo
COPY . .
ARG PIP_EXTRA_INDEX_URL=""
ARG PIP_NO_CACHE_DIR=1
RUN make install verl-env state-folders LOCKED=1 GPU=1 STATE=/srv/state OWNER=1000

ENV PATH=/srv/exgrpo/.venv/bin:$PATH \
    HOME=/srv/state/home \
    USER=exgrpo \
    EXGRPO_RUNS_ROOT=/srv/state/runs \
    EXGRPO_CACHE_DIR=/srv/state/cache \
    HF_HOME=/srv/state/models \
    EXGRPO_STOP_RUNS=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
VOLUME /srv/state
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD \
    ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["exgrpo", "up", "--no-browser"]
