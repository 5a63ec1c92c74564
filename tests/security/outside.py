"""A runs root with a run in it, and a whole run next to the root that nothing may reach."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec

CANARY = "canary-behind-the-fence"
INSIDE = "run-inside"
OUTSIDE = "run-outside"
LINKED = "run-linked"


@dataclass(frozen=True)
class Fenced:
    """`root` is the runs root; `beyond` holds what must be neither read nor written."""

    root: Path
    beyond: Path

    def forms(self):
        """Return ways to name the run beyond the root, and names that are none."""
        outside = str(self.beyond / OUTSIDE)
        relative = f"../{self.beyond.name}/{OUTSIDE}"
        return [
            relative, f"./{relative}", f"..//{self.beyond.name}//{OUTSIDE}", f"{INSIDE}/../{relative}",
            f"workbench/../{relative}", f"....//{self.beyond.name}/{OUTSIDE}", f"..\\{self.beyond.name}\\{OUTSIDE}",
            relative.replace("/", "%2f"), relative.replace("/", "\N{FRACTION SLASH}"),
            relative.replace(".", "\N{FULLWIDTH FULL STOP}"), outside, f"/{outside}", f"file://{outside}",
            f"~/../..{outside}", f"{outside}\0", f"{INSIDE}\0/{relative}", f"{relative}\n", f"{INSIDE}\n",
            f"$(echo {outside})", LINKED, f"{LINKED}/", "", " ", ".", "..", "../", "/", "~", "-", "*", "[a-z]*",
            "workbench", ".creating-x", "x" * 300, "\ud800",
        ]  # fmt: skip

    def state(self):
        """Return a checksum of everything beyond the root: names, contents and times."""
        digest = hashlib.sha256()
        for path in sorted(self.beyond.rglob("*")):
            digest.update(f"{path}{path.lstat().st_mtime_ns}".encode())
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()


def make(folder):
    fenced = Fenced(folder / "runs", folder / "beyond")
    fenced.root.mkdir()
    fenced.beyond.mkdir()
    for root, run_id, name in ((fenced.root, INSIDE, "inside"), (fenced.beyond, OUTSIDE, CANARY)):
        run = RunDirectory.create(root, TrainSpec(name=name), run_id=run_id)
        run.log_path.write_text(f"log of {name}\n")
        checkpoint = run.checkpoints_path / "step-00000001"
        (checkpoint / "policy").mkdir(parents=True)
        (checkpoint / "policy" / "config.json").write_text("{}")
        (checkpoint / "manifest.json").write_text(json.dumps({"step": 1, "files": {}}))
    (fenced.root / LINKED).symlink_to(fenced.beyond / OUTSIDE)
    return fenced
