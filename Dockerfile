# The workbench with the embedded engine. For the CPU build of PyTorch pass its index:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=... -t exgrpo-workbench .
#   docker run --rm -p 127.0.0.1:8501:8501 -v "$PWD/runs:/srv/workbench/runs" exgrpo-workbench
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

EXPOSE 8501
VOLUME /srv/workbench/runs
# Inside a container every address is the container's; publish the port on 127.0.0.1 only, as above.
CMD [".venv/bin/exgrpo", "up", "--host", "0.0.0.0", "--allow-remote", "--runs-root", "runs"]
