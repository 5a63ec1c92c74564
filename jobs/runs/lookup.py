"""Finding the run that a user names by part of its id or by its name."""

import contextlib
import difflib
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exgrpo.jobs.runs.checkpoints import NEWEST, checkpoint_path, find_fault, kept_start, list_steps, step_of
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, RunDirectoryError, list_run_directories
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo_core.faults import describe_fault
from exgrpo_core.recording.run_folder import id_end


class NotFoundError(CommandError):
    """Nothing has the name or id that was asked for."""


def similar_root(runs_root: Path) -> str:
    """Return a hint at a folder next to a runs root that does not exist, if one has a name like it; else nothing."""
    if runs_root.exists() or not runs_root.absolute().parent.is_dir():
        return ""
    beside = [path.name for path in runs_root.absolute().parent.iterdir() if path.is_dir()]
    near = difflib.get_close_matches(runs_root.name, beside, 1)
    return f"--runs-root: {runs_root} does not exist; did you mean {runs_root.with_name(near[0])}?" if near else ""


def check_root(runs_root: Path) -> None:
    """Refuse a runs root that does not exist.

    Raises:
        CommandError: It does not; a folder next to it with a name like it is named.
    """
    if not runs_root.is_dir():
        raise CommandError(similar_root(runs_root) or f"{runs_root}: no such runs root; name it with --runs-root.")


def find_run_id(runs_root: Path, text: str) -> str:
    """Return the id of the one run with this id, this beginning or end of its id, or this name.

    Raises:
        NotFoundError: No run matches.
        CommandError: Several do.
    """
    if hint := similar_root(runs_root):
        raise CommandError(hint)
    names, text = run_names(runs_root), unicodedata.normalize("NFC", text)
    if text in names:
        return text
    matches = [run_id for run_id in names if run_id.startswith(text) or id_end(run_id) == text] if text else []
    matches = matches or [run_id for run_id, name in names.items() if name == text]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        nameless = ", ".join([run_id for run_id, name in names.items() if not name][-5:])
        hint = f" Name runs with a damaged run.json by id: {nameless}." if nameless else ""
        raise NotFoundError(f"RUN: no run in {runs_root} matches {text!r}; `exgrpo runs` lists ids and names.{hint}")
    examples = ", ".join(matches[-5:])
    raise CommandError(f"RUN: {len(matches)} runs match {text!r}; give more of the id (among them {examples}).")


def find_judge_id(runs_root: Path, text: str | None) -> str | None:
    """Return the id of the judge's job that `text` means, as in `find_run_id`; None means no judge.

    Raises:
        CommandError: No job matches, several do, or it is not a judge's.
    """
    if text is None:
        return None
    run_id = find_run_id(runs_root, text)
    kind = RunDirectory.open(runs_root, run_id).job_spec().kind
    if kind != "judge":
        raise CommandError(
            f"--judge: expected a judge's job, {run_id} is of kind {kind}; `exgrpo query judges` lists them."
        )
    return run_id


def run_names(runs_root: Path) -> dict[str, str]:
    """Return the present name of every run by its id, empty where its folder does not say."""
    return names_of(runs_root, list_run_directories(runs_root))


def names_of(runs_root: Path, folders: Iterable[RunDirectory]) -> dict[str, str]:
    """Return the present names of run folders by id: those that users gave last, else those they were made with."""
    names: dict[str, str] = {}
    for run in folders:
        names[run.run_id] = ""
        with contextlib.suppress(RunDirectoryError):
            names[run.run_id] = str(run.read_run_info()["name"])
    for entry in Journal(runs_root).entries() if names else ():
        if entry.kind is JournalKind.RENAMED and entry.run_id in names:
            names[entry.run_id] = str(entry.data.get("name", ""))
    return names


_STEP = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class NamedCheckpoint:
    """A whole checkpoint of a run."""

    run_id: str
    step: int
    policy: Path
    """Folder of its model."""

    @property
    def target(self) -> str:
        """What names it in every runs root: `ID@STEP`."""
        return f"{self.run_id}@{self.step}"


def _copy_of_gone(runs_root: Path, target: str) -> NamedCheckpoint | None:
    """Return the copy of a checkpoint `ID@STEP` or `ID@last` that a run which began with it keeps; None for none."""
    copies = filter(None, (kept_start(run, target) for run in list_run_directories(runs_root)))
    return next((NamedCheckpoint(copy.parent.name, step_of(copy), copy) for copy in copies), None)


def find_checkpoint(runs_root: Path, target: str, *, reads_files: bool = True) -> NamedCheckpoint | None:
    """Return the checkpoint that `RUN@STEP` or `RUN@last` means, None for a folder or hub name.

    Its files are read to find damage, unless `reads_files` is False. Of `ID@STEP` that is gone, a run's copy counts.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
    """
    run_text, at, step_text = target.rpartition("@")
    if not at or os.path.exists(target):
        return None
    try:
        run = RunDirectory.open(runs_root, find_run_id(runs_root, run_text))
    except CommandError:
        if copy := _copy_of_gone(runs_root, target):
            return copy
        raise
    steps = list_steps(run.checkpoints_path)
    wanted = steps[-1] if step_text == NEWEST and steps else int(step_text) if _STEP.fullmatch(step_text) else None
    if wanted not in steps:
        if wanted is not None and (copy := _copy_of_gone(runs_root, f"{run.run_id}@{wanted}")):
            return copy
        available = ", ".join(map(str, steps)) or "none"
        raise CommandError(f"{target}: {run.run_id} has no checkpoint at step {step_text}; there are: {available}.")
    path = checkpoint_path(run.checkpoints_path, wanted)
    fault = find_fault(path) if reads_files else None
    if fault is not None:
        raise CommandError(f"{target}: {describe_fault(fault)} Choose another step.")
    return NamedCheckpoint(run.run_id, wanted, path / "policy")


def starting_checkpoint(runs_root: Path, target: str, *, reads_files: bool = True) -> NamedCheckpoint | None:
    """Return the checkpoint that `RUN@STEP` means, whose model a run can start from; None for a folder or hub name.

    Raises:
        CommandError: There is no such run or checkpoint, or its model is in shards, from which no run can start.
    """
    checkpoint = find_checkpoint(runs_root, target, reads_files=reads_files)
    if checkpoint is not None and not (checkpoint.policy / "config.json").is_file():
        raise CommandError(
            f"model.source: {target} has verl's sharded format; merge it first: `python -m verl.model_merger merge "
            f"--backend fsdp --local_dir {checkpoint.policy} --target_dir FOLDER`, and give FOLDER."
        )
    return checkpoint
