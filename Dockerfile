# The workbench with the embedded engine. For the CPU build of PyTorch pass its index:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... -t exgrpo-workbench .
#   docker run --rm --network host -v "$PWD/runs:/srv/workbench/runs" exgrpo-workbench
# The workbench binds 127.0.0.1, which is why the container shares the host's network. To use a GPU add `--gpus all`
# and build with an index of CUDA builds.
FROM python:3.12-slim AS workbench

RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends make procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 workbench \
    && install -d -o workbench -g workbench /srv/workbench /srv/workbench/runs

USER workbench
WORKDIR /srv/workbench
COPY --chown=workbench:workbench . .

ARG PIP_EXTRA_INDEX_URL=""
RUN PIP_NO_CACHE_DIR=1 make install

VOLUME /srv/workbench/runs
CMD [".venv/bin/exgrpo", "up", "--no-browser"]
