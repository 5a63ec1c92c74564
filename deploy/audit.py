"""Queries the advisory service about the locked packages, after a check that it answers.

`make audit` runs it. It ends with 0 where nothing is known, with 1 where something is, with 2 where nobody answered.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
LOCKS = (REPOSITORY / "requirements" / "locks" / "main.txt", REPOSITORY / "requirements" / "locks" / "verl-cpu.txt")
CONSTRAINTS = REPOSITORY / "requirements" / "constraints.txt"
ACCEPTED = REPOSITORY / "requirements" / "locks" / "accepted-advisories.toml"
KNOWN_BAD = "requests==2.19.1"
"""It has advisories since 2018: a service that names none was not asked, whatever it answered."""
EXIT_FOUND = 1
EXIT_NOT_ASKED = 2
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*==[^\s;\\]+)", re.MULTILINE)
_TIMEOUT_SECONDS = 600


class NotAskedError(Exception):
    """The advisory service did not answer; one sentence."""


def accepted_advisories(path: Path, today: date) -> dict[str, str]:
    """Return the ids that are accepted, with their reasons; an entry that ran out counts no more.

    Raises:
        ValueError: An entry lacks its id, its reason or the day on which it runs out.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("accepted", [])
    for entry in entries:
        if not (entry.get("id") and entry.get("reason") and isinstance(entry.get("until"), date)):
            raise ValueError(f"{path.name}: {entry}: expected id, reason and until (a date).")
    return {entry["id"]: entry["reason"] for entry in entries if entry["until"] >= today}


def ask(program: str, pins: list[str]) -> list[dict[str, Any]]:
    """Return the advisory service's record of each of these packages.

    Raises:
        NotAskedError: pip-audit came back without an answer.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pins) + "\n")
        file.flush()
        command = [program, "--disable-pip", "--no-deps", "--progress-spinner=off", "--format=json", "-r", file.name]
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
            records: list[dict[str, Any]] = json.loads(finished.stdout)["dependencies"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            raise NotAskedError(f"The advisory service cannot be reached from here ({type(error).__name__}).") from None
    return records


def check_service(program: str) -> None:
    """See that the service names a package that is known to be bad.

    Raises:
        NotAskedError: It does not, as behind a mirror that has packages and no advisories.
    """
    if not any(record.get("vulns") for record in ask(program, [KNOWN_BAD])):
        raise NotAskedError(f"No advisory service answers here: none is known for {KNOWN_BAD}, which has several.")


def findings(records: list[dict[str, Any]], accepted: dict[str, str]) -> list[str]:
    """Return a line for each advisory that is not accepted and for each package that nobody knew."""
    lines = []
    for record in records:
        if "skip_reason" in record:
            lines.append(f"{record['name']}: not audited ({record['skip_reason']})")
        for advisory in record.get("vulns", []):
            if not {advisory["id"], *advisory.get("aliases", [])} & accepted.keys():
                fixes = ", ".join(advisory.get("fix_versions", [])) or "none yet"
                lines.append(f"{record['name']} {record['version']}: {advisory['id']}, fixed in {fixes}")
    return lines


def locked_pins() -> list[str]:
    """Return every package of the lock files and torch, whose build they leave open."""
    texts = [path.read_text(encoding="utf-8") for path in LOCKS]
    torch = [pin for pin in _PIN.findall(CONSTRAINTS.read_text(encoding="utf-8")) if pin.startswith("torch==")]
    return sorted({*torch, *(pin for text in texts for pin in _PIN.findall(text))})


def main(program: str) -> int:
    """Audit with pip-audit at `program`, print the findings and return the exit code."""
    accepted = accepted_advisories(ACCEPTED, datetime.now(UTC).date())
    pins = locked_pins()
    by_name: dict[str, list[str]] = {}
    for pin in pins:
        by_name.setdefault(pin.partition("==")[0], []).append(pin)
    # pip-audit takes one version of a package at a time; the two environments differ in a few.
    rounds = [[versions[0] for versions in by_name.values()], [pin for rest in by_name.values() for pin in rest[1:]]]
    try:
        check_service(program)
        lines = [line for part in rounds if part for line in findings(ask(program, part), accepted)]
    except NotAskedError as error:
        print(f"{error} Nothing was audited.", file=sys.stderr)  # noqa: T201 - the one sentence a user sees
        return EXIT_NOT_ASKED
    print("\n".join(lines or [f"{len(pins)} packages: no advisory beyond {len(accepted)} accepted."]))  # noqa: T201
    return EXIT_FOUND if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
