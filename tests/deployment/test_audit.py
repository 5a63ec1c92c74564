"""The audit's own rules, against programs that answer as pip-audit does; the real service is asked by `make audit`."""

import json
from datetime import date

import pytest

from deploy import audit
from deploy.audit import ACCEPTED, KNOWN_BAD, accepted_advisories, locked_pins, main

ADVISORY = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.0"]}
TODAY = date(2026, 6, 1)


@pytest.fixture
def pip_audit(tmp_path):
    """Return a function that makes a program answering with these records, and for the known bad one with another."""

    def make(records, known_bad):
        (tmp_path / "records").write_text(json.dumps({"dependencies": records, "fixes": []}))
        (tmp_path / "known").write_text(json.dumps({"dependencies": known_bad, "fixes": []}))
        program = tmp_path / "pip-audit"
        program.write_text(
            '#!/bin/sh\nfor last in "$@"; do :; done\n'
            f'if grep -qx "{KNOWN_BAD}" "$last"; then cat {tmp_path}/known; else cat {tmp_path}/records; fi\n'
        )
        program.chmod(0o755)
        return str(program)

    return make


BAD = [{"name": "requests", "version": "2.19.1", "vulns": [ADVISORY]}]


@pytest.mark.parametrize(
    ("record", "exit_code", "said"),
    [
        ({"version": "0.28.1", "vulns": []}, 0, "no advisory"),
        ({"version": "0.28.1", "vulns": [ADVISORY]}, 1, "httpx 0.28.1: PYSEC-1, fixed in 2.0"),
        ({"skip_reason": "not found"}, 1, "httpx: not audited (not found)"),
    ],
)
def test_advisories_and_packages_that_nobody_knows_are_named(pip_audit, capsys, record, exit_code, said):
    assert main(pip_audit([{"name": "httpx"} | record], BAD)) == exit_code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("accepted_id", ["PYSEC-1", "CVE-1"])
def test_an_accepted_advisory_is_passed_over_until_its_day(pip_audit, tmp_path, monkeypatch, accepted_id):
    path = tmp_path / "accepted.toml"
    program = pip_audit([{"name": "httpx", "version": "0.28.1", "vulns": [ADVISORY]}], BAD)
    monkeypatch.setattr(audit, "ACCEPTED", path)
    for until, exit_code in (("2999-01-01", 0), ("2020-01-01", 1)):
        path.write_text(f'[[accepted]]\nid = "{accepted_id}"\nreason = "Not called."\nuntil = {until}\n')
        assert main(program) == exit_code


@pytest.mark.parametrize("known", [[], [{"name": "requests", "skip_reason": "not found"}]])
def test_a_service_that_knows_no_advisories_was_not_asked(pip_audit, capsys, known):
    assert main(pip_audit([], known)) == 2
    assert "Nothing was audited." in capsys.readouterr().err


def test_every_accepted_advisory_has_a_reason_and_a_day(tmp_path):
    assert isinstance(accepted_advisories(ACCEPTED, TODAY), dict)
    (tmp_path / "accepted.toml").write_text('[[accepted]]\nid = "PYSEC-1"\nuntil = 2999-01-01\n')
    with pytest.raises(ValueError, match="reason"):
        accepted_advisories(tmp_path / "accepted.toml", TODAY)


def test_what_is_audited_is_what_is_locked_and_torch():
    pins = locked_pins()
    assert any(pin.startswith("torch==") for pin in pins)
    assert {"httpx==0.28.1", "verl==0.9.1"} <= set(pins)
