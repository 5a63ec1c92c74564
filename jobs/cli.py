"""The `exgrpo` command. Heavy modules are imported inside the commands that need them, so it starts at once."""

from jobs import (
    cli_alerts,
    cli_backup,
    cli_data,
    cli_demo,
    cli_eval,
    cli_experience,
    cli_judge,
    cli_machine,
    cli_marks,
    cli_runs,
    cli_scores,
    cli_seed,
    cli_study,
    cli_thoughts,
    cli_train,
    cli_up,
)
from jobs.cli_options import command_group

app = command_group("Train with ExGRPO, and see what its replay buffer does.", "exgrpo")
database_app = command_group("The database, which is an index of the run folders.")

app.command("up")(cli_up.up)
app.command("demo")(cli_demo.demo)
app.command("train")(cli_train.train)
app.command("eval")(cli_eval.evaluate)
app.command("scores")(cli_scores.scores)
app.command("judge")(cli_judge.judge)
app.command("judges")(cli_thoughts.judges)
app.command("verdicts")(cli_thoughts.verdicts)
app.command("override")(cli_thoughts.override)
app.command("mark")(cli_marks.mark)
app.command("marks")(cli_marks.marks)
app.command("buffer")(cli_experience.buffer)
app.command("audit")(cli_experience.audit)
app.command("trajectories")(cli_experience.trajectories)
app.command("trajectory")(cli_experience.trajectory)
app.command("curves")(cli_experience.curves)
app.command("journal")(cli_experience.journal)
app.command("presets")(cli_train.presets)
app.command("runs")(cli_runs.runs)
app.command("show")(cli_runs.show)
app.command("logs")(cli_runs.logs)
app.command("stop")(cli_runs.stop)
app.command("resume")(cli_runs.resume)
app.command("clone")(cli_runs.clone)
app.command("branch")(cli_runs.branch)
app.command("tag")(cli_runs.tag)
app.command("note")(cli_runs.note)
app.command("archive")(cli_runs.archive)
app.command("import")(cli_data.import_)
app.command("adopt")(cli_data.adopt)
app.command("export")(cli_data.export)
app.command("backup")(cli_backup.backup)
app.command("restore")(cli_backup.restore)
app.command("seed-demo")(cli_seed.seed_demo)
app.command("doctor")(cli_machine.doctor)
database_app.command("upgrade")(cli_data.upgrade)
database_app.command("rebuild")(cli_data.rebuild)
app.add_typer(database_app, name="db")
app.add_typer(cli_alerts.alerts_app, name="alerts")
cli_judge.analyse_app.command("code")(cli_thoughts.code)
app.add_typer(cli_judge.analyse_app, name="analyse")
app.add_typer(cli_thoughts.cases_app, name="cases")
app.add_typer(cli_study.study_app, name="study")


def main() -> None:
    """Run the command that the command line names."""
    app()


if __name__ == "__main__":
    main()
