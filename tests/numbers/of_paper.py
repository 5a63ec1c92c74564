"""What Studies, Paper and System should show: printed numbers by the files of studies, the others by runs."""

import json
import os
import platform
import re
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from exgrpo.app.components.paper.entries import ENTRIES
from exgrpo.jobs.specs.train import TrainSpec
from tests.numbers import of_runs, of_thoughts, record
from tests.numbers.checking import Columns, Expected
from tests.numbers.derived import half_of_mean
from tests.numbers.of_runs import option, size, spec_fields
from tests.numbers.of_scores import FOLDER, bars, study

PRINTING = sorted(path.stem for path in FOLDER.glob("*.yaml") if {"tables", "gains"} & {*study(path.stem)})
"""Names of the studies for which the paper prints numbers."""


def printed_table(table):
    rows = [
        {"Group": row.get("group", ""), "Row": row["row"], "Cells here": ", ".join(row.get("cells", [])) or "none"}
        | dict(zip(table["columns"], map(str, row["values"]), strict=True))
        for row in table["rows"]
    ]
    return pd.DataFrame(rows)


def printed_page(name):
    content = study(name)
    tables = {"The paper's table": pd.concat([pd.DataFrame(), *map(printed_table, content.get("tables", []))])}
    claims = [claim for claim in content.get("claims", []) if "table" not in claim]
    tables["Numbers in the paper's text"] = pd.DataFrame(
        [{"What": claim["row"], "Column": claim["column"], "Number": str(claim["value"])} for claim in claims]
    )
    tables["Gains in each setting, from the printed tables"] = pd.DataFrame(_gains(content))
    return Expected({}, tables, {}, _words(content))


def methods_page():
    """Return what the cards of replay methods show: numbers are of the papers, or in a method's own description."""
    folder = Path(__file__).parents[2] / "exgrpo_core" / "strategies"
    written = {*re.findall(r"\d[\d.]*", " ".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py")))}
    return Expected({}, {}, {}, [lambda text: {*re.findall(r"\d[\d.]*", text)} <= written])


def _words(content):
    return [re.escape(content["question"]) + r".*", r"- .*", r".*: the paper (prints|says) .*"]


def _gains(content):
    """Return the difference of two printed rows in each setting, and the means."""
    rows, numbers = [], []
    for gain in content.get("gains", []):
        [table] = [table for table in study(gain["study"])["tables"] if table["name"] == gain["table"]]
        values = [
            dict(zip(table["columns"], row["values"], strict=True))
            for cell in gain["cells"]
            for row in table["rows"]
            if cell in row.get("cells", []) and row.get("group", "") == gain["group"]
        ]
        numbers.append([values[0][column] - values[1][column] for column in content["gain_columns"].values()])
        rows.append(
            {"Setting": gain["setting"]}
            | dict(zip(content["gain_columns"], map("{:+z.1f}".format, numbers[-1]), strict=True))
        )
    if not rows:
        return []
    means = map("{:+z.2f}".format, np.mean(numbers, axis=0))
    return [*rows, {"Setting": "Mean"} | dict(zip(content["gain_columns"], means, strict=True))]


def study_pages(root):
    content = study(record.STUDY)
    names = [cell["name"] for cell in content["cells"] if "chains" in cell]
    scores: dict[str, dict[int, float]] = {}
    for run_id, (cell, seed) in record.SEEDS.items():
        scores.setdefault(cell, {})[seed] = 100 * list(root.by_name[run_id].scores().values())[-1].mean
    done, num = sum(map(len, scores.values())), NUM_SEEDS * len(names)
    states = [f"missing, {len(scores[name])}/{NUM_SEEDS} seeds" if name in scores else "missing" for name in names]
    cells = pd.DataFrame({"Cell": names, "State": states})
    progress = rf"{done} of {num} runs finished · {num - done} missing"
    matrix = Expected({}, {"Cells of the study with the state of each seed": cells}, {}, [progress, *_words(content)])
    [table], baseline = content["tables"], content["baseline"]
    figure = "Held-out Avg@4 (%)"
    order = [name for name in names if name in scores]
    pairs = {cell: [scores[cell][seed] - scores[baseline][seed] for seed in sorted(scores[cell])] for cell in order}
    values = {cell: [scores[cell][seed] for seed in sorted(scores[cell])] for cell in order}
    main = table["columns"].index("ID Avg.")
    printed = {cell: row["values"][main] for row in table["rows"] for cell in row.get("cells", [])}
    lines = []
    for row in table["rows"]:
        for cell in (cell for cell in row.get("cells", []) if cell in scores):
            is_other = cell != baseline
            lines.append({
                "Paper's row": row["row"], "Cell": cell, "Paper, ID Avg.": str(row["values"][main]),
                "Paper, difference": f"{printed[cell] - printed[baseline]:+z.1f}" if is_other else None,
                "Yours": _interval(values[cell]),
                "Yours, difference": _interval(pairs[cell], is_signed=True) if is_other else None,
                "Lowest seed": f"{(low := min(values[cell])):.{1 if low >= 10 else 2 if low >= 1 else 3}f}",
                "Seeds": len(values[cell]),
            })  # fmt: skip
    own = pd.DataFrame([
        {"Cell": cell, figure: _interval(values[cell]), "Seeds": len(values[cell]),
         "Difference": _interval(pairs[cell], is_signed=True) if cell != baseline else None}
        for cell in order
    ])  # fmt: skip
    drawn = [(cell, value) for cell in order[::-1] for value in values[cell]]
    figures: dict[str, dict[str, Columns]] = {figure: {
        "mean": {
            "y": order[::-1], "x": [np.mean(values[cell]) for cell in order[::-1]],
            "error_x.array": [min(half_of_mean(values[cell]), 100 - np.mean(values[cell])) for cell in order[::-1]],
            "error_x.arrayminus": [min(half_of_mean(values[cell]), np.mean(values[cell])) for cell in order[::-1]],
        },
        "seed": {"y": [cell for cell, _ in drawn], "x": [value for _, value in drawn]},
    }}  # fmt: skip
    is_chance = stats.ttest_1samp(pairs["exgrpo"], 0.0).pvalue >= 0.05
    side = "Higher than the baseline" if np.mean(pairs["exgrpo"]) > 0 else "Lower"
    verdict = "Not distinguishable from it" if is_chance else side
    text = rf"Differences are to the cell {baseline}.*{verdict}: exgrpo\..* 5%.*cells compared: 1.*95% intervals.*"
    tables = {"The paper's numbers next to yours": pd.DataFrame(lines), "Every figure of every cell": own}
    return matrix, Expected({}, tables, figures, [text, rf"\*\*{re.escape(figure)}\*\* &nbsp; .*", *_words(content)])


NUM_SEEDS = 8
"""Seeds of a cell that a study wants which does not say how many."""


def _interval(values, *, is_signed=False):
    mean, half = float(np.mean(values)), half_of_mean(values) or 0.0
    decimals = 1 if max(abs(mean), half) >= 10 else 2
    low, high = max(mean - half, 0.0), min(mean + half, 100.0)
    if not is_signed and high - low < 2 * half - 1e-9:
        return f"{mean:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"
    return f"{'+' if is_signed and mean > 0 else ''}{mean:.{decimals}f} ± {half:.{decimals}f}"


class _Installed:
    """Names with versions of an environment's packages, each of which has a folder of its own there."""

    def __init__(self, environment):
        packages = metadata.distributions(path=map(str, environment.glob("lib/python3*/site-packages")))
        self.versions = {package.name.lower(): package.version for package in packages}

    def fullmatch(self, text):
        pairs = re.findall(r"([a-z]+) ([\d.]+[^ ,]*)", text)
        return bool(pairs) and all(self.versions.get(name) == version for name, version in pairs)


def machine_page(root):
    """Return what System shows of a machine without a GPU: what it has, and versions of packages."""
    versions = {package.name.lower(): package.version for package in metadata.distributions()}
    free = shutil.disk_usage(root.path).free / 2**30
    verl = Path(os.environ.get("EXGRPO_VERL_PYTHON", ".venv-verl/bin/python")).parent.parent
    found = {
        "Python": platform.python_version(), "PyTorch": f"{versions['torch']}, {os.cpu_count()} cores",
        "GPU": "PyTorch finds none", "verl engine": _Installed(verl) if verl.exists() else "no environment",
        "runs root": str(root.path), "disk": re.compile(rf"({free:.0f}|{free - 0.5:.0f}|{free + 0.5:.0f}) GiB free"),
        "temporary": tempfile.gettempdir(),
        "database": f"SQLite, {len(root.newest_first)} runs",
        "port": re.compile(r"8501 .*"), "supervisor": "none is running",
    }  # fmt: skip
    without_numbers, without_verl = re.compile(r"\D*"), re.compile(r"\D*" if verl.exists() else ".*run make verl-env.*")
    advice = [without_verl if name == "verl engine" else without_numbers for name in found]
    frame = pd.DataFrame(
        {"Checked": list(found), "Found": pd.Series(found.values(), dtype=object), "What to do": advice}
    )
    tables = {
        "Checks of exgrpo doctor": frame,
        "Versions of packages": lambda shown: pd.DataFrame({
            "Package": shown["Package"],
            "Version": [versions.get(name.lower(), "not installed") for name in shown["Package"]],
        }),
    }  # fmt: skip
    return Expected(tables=tables)


def system_pages(root):
    folder = root.path / "workbench"
    tiles = {
        "Supervisor": ("running", re.compile(r"heartbeat .* ago")),
        "Database": ("SQLite", size((folder / "workbench.db").stat().st_size)),
        "Queue": ("0 queued", "0 running"),
    }
    entries = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()][::-1]
    times = [entry["at"][:19].replace("T", " ") for entry in entries]
    log = pd.DataFrame({
        "When, UTC": times, "Run": [root.by_name[entry["run_id"]].name for entry in entries],
        "Run id": [entry["run_id"] for entry in entries],
        "Details": [", ".join(f"{key.replace('_', ' ')} {value}" for key, value in entry["data"].items())
                    for entry in entries],
    })  # fmt: skip
    where = rf"Runs root {re.escape(str(root.path))}, database .*"
    return Expected(tiles, texts=[where]), Expected(tables={"What users did": log})


def paper_page(entry, expected):
    """Return what an entry shows of the paper, next to what its runs show as `expected` of other pages."""
    tables = [
        table
        for name in (entry.study, *entry.others)
        for table in (study(name).get("tables", []) if entry.table else [])
        if table["name"] == entry.table
    ]
    frames = {f"The paper's {entry.label}": list(map(printed_table, tables))}
    rows: dict[tuple[str, str, str], float] = {}
    for table in tables:
        for row in table["rows"]:
            text = str(row["values"][table["columns"].index(entry.column)])
            if re.fullmatch(r"-?[\d.]+", text):
                rows.setdefault(("", row["row"], text), float(text))
    figures: dict[str, dict[str, Columns]] = {
        "As the paper prints it": {
            entry.column: {
                "x": (values := list(rows.values())[::-1]),
                "text": [text for _, _, text in rows][::-1],
                "y": lambda columns: columns["y"] if len(columns["y"]) == len(values) else [],
            }
        }
    }
    words = [re.escape(f"{entry.label}: {entry.title}"), re.escape(entry.finding), r"- Case 1 lowest entropy: .*"]
    return Expected({}, expected.tables | frames, expected.figures | figures, [*expected.texts, *words])


SETTINGS = ("algorithm", "optim", "num_steps")
"""Parts of a specification that the paper's table of hyperparameters has."""


PRINTED_SETTINGS = {
    "algorithm": {
        "batch_size": 128, "mini_batch_size": 64, "rollouts_per_question": 8, "max_prompt_tokens": 1024,
        "max_response_tokens": 8192, "temperature": 1.0, "experience_ratio": 0.5, "bucket_center": 0.5,
        "bucket_spread": 1.0, "start_pass_rate": 0.35, "shaping_beta": 0.1, "entropy_coefficient": 0.001,
        "kl_coefficient": 0.0, "policy_loss_factor": 64.0, "normalize_by_std": False,
    },
    "optim": {"learning_rate": 1e-6, "beta2": 0.999, "weight_decay": 0.01},
    "num_steps": 700,
}  # fmt: skip
"""What the paper says of its main run; it says nothing of the other settings, which are their defaults."""


def _of_the_paper():
    defaults = TrainSpec().model_dump(mode="json")
    return {name: defaults[name] | part if isinstance(part, dict) else part for name, part in PRINTED_SETTINGS.items()}


def settings(specs):
    fields = {
        name: dict(spec_fields({key: spec[key] for key in SETTINGS if key in spec})) for name, spec in specs.items()
    }
    [first, *_] = fields.values()
    return pd.DataFrame(
        [{"Field": path} | {name: option(of[path]) for name, of in fields.items() if path in of} for path in first]
    )


def paper_views(root):
    """Yield the address of each entry next to two runs, and what it shows: as the pages where it lives do."""
    runs = [root.by_name[run_id] for run_id in (record.CHAINS, record.ON_POLICY)]
    run, whole = runs[0], Expected()
    cases, rules = of_thoughts.cases_of(run)[:1], of_thoughts.rules_page(run)
    parts = (
        of_runs.run_page(run), of_thoughts.entropy_page(root, run), of_thoughts.snowball_page(run),
        of_thoughts.cases_page(run, cases), of_runs.compare_page(runs), rules,
    )  # fmt: skip
    for part in parts:
        whole.tables |= part.tables
        whole.figures |= part.figures
        whole.texts += part.texts
    last = [list(item.scores().values())[-1] for item in runs[::-1]]
    left = [item.metrics["batch/questions_left"] for item in runs]
    whole.figures |= {
        "Held-out questions": {"": {
            "x": [score.mean for score in last], "error_x.array": [score.high - score.mean for score in last],
            "error_x.arrayminus": [score.mean - score.low for score in last],
        }},
        "Entropy of valid and invalid reasoning": whole.figures["Entropy by validity"],
        "Entropy of valid chains by difficulty": whole.figures["Entropy of valid chains"],
        "Mean reward": {item.name: of_runs.line(item, "reward/mean") for item in runs},
        "Questions left in a mini-batch: mean of the step's mini-batches": {
            item.name: of_runs.line(item, "batch/questions_left") for item in runs
        },
    }  # fmt: skip
    whole.tables["Mean number of questions per mini-batch"] = pd.DataFrame(
        {"Run": [item.name for item in runs], "# Avg. Mini-Batch": [values.mean() for values in left]}
    )
    whole.texts += [
        r"\*\*Held-out questions\*\* &nbsp; .*",
        r"\*\*M\*\* bounds every weight W \(assumption A3\)\..*", r"<div .*<img src=.*",
    ]  # fmt: skip
    whole.figures |= bars()
    specs = {"Paper": _of_the_paper()} | {item.name: item.spec for item in runs}
    whole.tables["Hyperparameters of the paper and of these runs"] = settings(specs)
    for entry in ENTRIES:
        query = {"figure": entry.key, "beside": "Chosen runs", "runs": ",".join(item.run_id for item in runs)}
        yield query, paper_page(entry, whole)
