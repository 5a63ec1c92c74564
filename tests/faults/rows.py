"""The rows of docs/reliability.md: what is done to a running workbench, and what must hold then."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of fault with its pass criterion."""

    number: int
    fault: str
    criterion: str


ROWS = {
    row.number: row
    for row in (
        Row(
            1,
            "kill -9 of trainer, supervisor and web server at 200 random points, 50 of them inside a save",
            "no store corrupt, 200 of 200 resume, at most the training since the last whole checkpoint is lost, every "
            "recorded event in the database exactly once, no stray process",
        ),
        Row(
            2,
            "stop and resume at every step of a run that crosses ends of epochs, step 0 and the last included",
            "losses, weights, buffer and draws identical; never finished with steps missing",
        ),
        Row(
            3,
            "snapshots and checkpoints cut at 20 places, one byte flipped at 50, emptied, missing",
            "always noticed and named, the previous one used, nothing loaded in part",
        ),
        Row(
            4,
            "disk full while an event, a snapshot, the database or an export is written",
            "a clean failure that says so, old data intact, continues once there is space",
        ),
        Row(
            5,
            "PostgreSQL stopped for 5 s, 60 s and 2 minutes, and killed after COMMIT was sent",
            "nothing lost or doubled; pages say stale within 5 s and recover within 30 s; training never notices",
        ),
        Row(
            6,
            "SQLite with 4 writers and 4 readers for 10 minutes; a runs root on a network file system",
            "no lock error surfaces, p99 of a write under 1 s, write-ahead log bounded; the network file system "
            "refused with a sentence",
        ),
        Row(
            7,
            "two supervisors claim the same job 1,000 times; one is stopped past its lease and continued",
            "one start each; the continued one ends itself and nothing with its old token is accepted",
        ),
        Row(
            8,
            "events doubled, reordered and replayed; a clock an hour off; NaN, infinities, huge numbers, a step twice",
            "the same state, durations right; stored, shown, valid JSON",
        ),
        Row(
            9,
            "Ray head killed, job stuck, dashboard unreachable",
            "lost within 60 s; a resubmit continues from the last checkpoint",
        ),
        Row(
            10,
            "judge endpoint answers 429, 500, never, in drips, cut JSON, HTML, 10 MB, both verdicts",
            "unjudged, nothing paid twice after a resume",
        ),
        Row(
            11,
            "a trajectory of 50 MB, a line of a million tokens, 100,000 trajectories of one question",
            "pages answer within 2 s of processor time",
        ),
        Row(
            12,
            "the database dropped, cut, overwritten or of an unknown schema; one of every released schema",
            "rebuilt to the same query results, what users wrote included; upgraded to what a rebuild gives",
        ),
        Row(
            13,
            "30 minutes of back-to-back runs while pages are asked for by 20 browsers' worth of requests",
            "memory flat, no lock error, no file, process or shared memory left behind",
        ),
        Row(
            14,
            "1,000 random cuts and flipped bits in the files of a runs root that are the truth or that a page reads",
            "none accepted silently, nothing else lost, what can be recovered said",
        ),
        Row(
            15,
            "kill -9 of the trainer at 150 random moments, in every phase of a step, a checkpoint and a start",
            "no trajectory of a recorded step is lost or changed where the run keeps the newest experience",
        ),
        Row(
            16,
            "disk full as each phase begins: rollout, score, update, collecting, evaluation, checkpoint",
            "a clean failure that says so; with space the run ends bit for bit as any other",
        ),
        Row(
            17,
            "steps of 150 s, evaluations of 60 s and checkpoints of 180 s, scaled: a stop in each phase",
            "stopped at the step's end with a checkpoint, never by force; resumed to the same end bit for bit",
        ),
        Row(
            18,
            "a file system that hangs for 20 minutes, scaled, at a write of the trainer, as one on a network does",
            "the run is neither lost nor ended by force; it continues by itself to the same end bit for bit",
        ),
        Row(
            19,
            "30 browsers at once for ten minutes, which go through all pages of a run that trains and of a recorded "
            "one, and refresh them",
            "no error, 95% of pages within 5 s on 2 cores, the web server's memory bounded",
        ),
    )
}
