"""The `exgrpo` command. Heavy modules are imported inside the commands that need them, so it starts at once."""

from jobs.cli import (
    alerts,
    backup,
    chains_of_thought,
    data,
    demo_command,
    evaluate,
    experience,
    judge,
    machine,
    marks,
    runs,
    scores,
    seed,
    study,
    train,
    up,
)
from jobs.cli.options import command_group

app = command_group("Train with ExGRPO, and see what its replay buffer does.", "exgrpo")
database_app = command_group("The database, which is an index of the run folders.")

app.command("up")(up.up)
app.command("demo")(demo_command.demo)
app.command("train")(train.train)
app.command("eval")(evaluate.evaluate)
app.command("scores")(scores.scores)
app.command("judge")(judge.judge)
app.command("judges")(chains_of_thought.judges)
app.command("verdicts")(chains_of_thought.verdicts)
app.command("override")(chains_of_thought.override)
app.command("mark")(marks.mark)
app.command("marks")(marks.marks)
app.command("buffer")(experience.buffer)
app.command("audit")(experience.audit)
app.command("trajectories")(experience.trajectories)
app.command("trajectory")(experience.trajectory)
app.command("curves")(experience.curves)
app.command("journal")(experience.journal)
app.command("presets")(train.presets)
app.command("runs")(runs.runs)
app.command("show")(runs.show)
app.command("logs")(runs.logs)
app.command("stop")(runs.stop)
app.command("resume")(runs.resume)
app.command("clone")(runs.clone)
app.command("branch")(runs.branch)
app.command("tag")(runs.tag)
app.command("note")(runs.note)
app.command("archive")(runs.archive)
app.command("import")(data.import_)
app.command("adopt")(data.adopt)
app.command("export")(data.export)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("seed-demo")(seed.seed_demo)
app.command("doctor")(machine.doctor)
database_app.command("upgrade")(data.upgrade)
database_app.command("rebuild")(data.rebuild)
app.add_typer(database_app, name="db")
app.add_typer(alerts.alerts_app, name="alerts")
judge.analyse_app.command("code")(chains_of_thought.code)
app.add_typer(judge.analyse_app, name="analyse")
app.add_typer(chains_of_thought.cases_app, name="cases")
app.add_typer(study.study_app, name="study")


def main() -> None:
    """Run the command that the command line names."""
    app()
