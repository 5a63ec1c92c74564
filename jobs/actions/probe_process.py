"""A probe of a model in a process of its own, for programs that must not load an engine."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from jobs.launchers.local import WITHHELD_VARIABLES, project_environment
from jobs.specs.train import TrainSpec, dump_spec
from jobs.training.probe_report import ProbeReport

_MODULE = "jobs.cli"


class ProbeProcess:
    """Runs `exgrpo probe` with a specification; nothing is written to the runs root."""

    def __init__(self, spec: TrainSpec, runs_root: Path) -> None:
        """Start it."""
        self._result: ProbeReport | str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="exgrpo-probe-")
        path = Path(self._folder.name)
        (path / "spec.json").write_text(dump_spec(spec), encoding="utf-8")
        command = [sys.executable, "-P", "-m", _MODULE, "probe", "--spec", str(path / "spec.json"), "--json"]
        command += ["--runs-root", str(runs_root.absolute())]
        with (path / "report.json").open("wb") as report:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=report,
                stderr=subprocess.DEVNULL,
                env=project_environment(dict.fromkeys(WITHHELD_VARIABLES, "")),
            )

    def result(self) -> ProbeReport | str | None:
        """Return the report, one sentence on why there is none, or None while the probe is running."""
        if self._result is None and self._process.poll() is not None:
            self._result = self._read(Path(self._folder.name))
            self._folder.cleanup()
        return self._result

    def stop(self) -> None:
        """End the process if it is running."""
        self._process.kill()
        self._process.wait()
        self.result()

    def _read(self, path: Path) -> ProbeReport | str:
        if not (content := (path / "report.json").read_text(encoding="utf-8")):
            return f"The probe ended with code {self._process.returncode}."
        answer = json.loads(content)
        return str(answer["why"]) if "why" in answer else ProbeReport.from_json(answer)
