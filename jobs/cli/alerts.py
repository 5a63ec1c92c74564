"""The command that tries the destinations of alerts."""

import typer

from jobs.alerts.destinations import AlertError, read_destinations
from jobs.cli.options import EXIT_FAILURE, command_group, print_result

alerts_app = command_group("Messages to you when a run fails, stalls or collapses.")


@alerts_app.callback()
def alerts() -> None:
    """Messages to you when a run fails, is lost, stalls or collapses, or the disk is nearly full."""


@alerts_app.command("test")
def test() -> None:
    """Send a message to every destination of EXGRPO_ALERT_URLS and EXGRPO_ALERTS_FILE, and print which accepted it."""
    import os

    destinations = read_destinations(os.environ)
    if not destinations:
        raise AlertError(
            "No destination is set: name Apprise URLs in EXGRPO_ALERT_URLS or a file in EXGRPO_ALERTS_FILE."
        )
    has_failed = False
    for destination in destinations:
        was_accepted = destination.send("ExGRPO Workbench: a test", "Alerts of this workbench arrive here.")
        print_result(f"{destination.name}: {'sent' if was_accepted else 'not accepted; check the URL and the network'}")
        has_failed |= not was_accepted
    if has_failed:
        raise typer.Exit(EXIT_FAILURE)
