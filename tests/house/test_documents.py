"""The documents say what is: every folder, command and file that they name is there."""

import os
import re
from functools import cache
from pathlib import Path

import pytest
import typer.cli
import typer.main
import yaml
from typer.testing import CliRunner

from exgrpo.app.page_list import PAGES
from exgrpo.db.tables import models
from exgrpo.jobs.cli.main import COMMANDS
from exgrpo.jobs.cli.main import app as command_line
from exgrpo.jobs.specs.train import parse_spec, preset_names
from tests.house.tracked import PACKAGES, REPOSITORY, read, tracked_files

DOCUMENTS = [
    str(path) for path in tracked_files() if path.suffix == ".md" and path.name not in {"CHANGELOG.md", "cli.md"}
]
FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
TREE_LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w.-]+)/(?: +(?P<what>\S.*))?$")


def code_in(document):
    text = read(Path(document))
    return FENCE.findall(text) + CODE_SPAN.findall(FENCE.sub("", text))


def words_after(command, document):
    pattern = re.compile(rf"(?:^|[\s`/(]){re.escape(command)} ([a-z][a-z0-9_.-]*)", re.MULTILINE)
    return {word for code in code_in(document) for word in pattern.findall(code)}


def folder_tree():
    block = next(
        block for block in FENCE.findall(read(Path("ARCHITECTURE.md"))) if re.search(r"^exgrpo_core/", block, re.M)
    )
    folders: dict[str, str] = {}
    stack: list[str] = []
    for match in filter(None, map(TREE_LINE.match, block.splitlines())):
        del stack[len(match["indent"]) // 2 :]
        stack.append(match["name"])
        folders["/".join(stack)] = match["what"] or ""
    return folders


@cache
def exgrpo_commands():
    group = typer.main.get_command(command_line)
    return {name: group.get_command(None, name) for commands in COMMANDS.values() for name in commands}


@cache
def options_of(command):
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*map(options_of, getattr(command, "commands", {}).values()))


def test_the_tree_names_every_top_folder_and_none_that_is_not_there():
    named = set(folder_tree())
    missing = {path.parts[0] for path in tracked_files() if path.suffix == ".py" and len(path.parts) > 1} - named
    assert not missing, f"ARCHITECTURE.md, Folders: add a line for {', '.join(sorted(missing))}."
    assert [folder for folder in named if not (REPOSITORY / folder).is_dir()] == []
    assert [folder for folder, what in folder_tree().items() if not what] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_and_exgrpo_commands_named_in_the_document_exist(document):
    targets = re.findall(r"^([a-z][a-z-]*):", read(Path("Makefile")), re.MULTILINE)
    assert words_after("make", document) - {*targets} == set()
    assert words_after("exgrpo", document) - exgrpo_commands().keys() == set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_options_of_exgrpo_commands_named_in_the_document_exist(document):
    used = [
        (match["command"], option)
        for code in code_in(document)
        for match in re.finditer(r"^(?:\S*/)?exgrpo (?P<command>[a-z-]+)(?P<rest>[^#\n]*)", code, re.MULTILINE)
        for option in re.findall(r"(?<=\s)-{1,2}[a-z-]+", match["rest"])
    ]
    commands = exgrpo_commands()
    assert [(command, option) for command, option in used if option not in options_of(commands[command])] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_programs_named_in_the_document_exist(document):
    modules = {
        name for name in words_after("python -m", document) if name.split(".")[0] in {*PACKAGES, "tests", "bench"}
    }
    missing = [name for name in modules if not (REPOSITORY / f"{name.replace('.', '/')}.py").is_file()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_named_in_the_document_exist(document):
    text = read(Path(document))
    spans = {
        span for span in CODE_SPAN.findall(FENCE.sub("", text)) if re.fullmatch(r"(\w[\w.-]*/)+[\w.-]+\.\w+", span)
    }
    paths = {span for span in spans if span.split("/")[0] in {*PACKAGES, "tests", "bench", "docs"}}
    assert [name for name in paths if not (REPOSITORY / name).exists()] == []


def test_links_of_all_documents_lead_to_files_and_headings():
    found = re.compile(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)").findall
    paths = [path for path in tracked_files() if path.suffix in {".md", ".ipynb"}]
    links = [(path, link, part) for path in paths for link, part in found(FENCE.sub("", read(path)))]
    broken = [(str(path), link) for path, link, _ in links if not (REPOSITORY / path.parent / link).exists()]
    assert broken == []
    targets = [(path, (path.parent / link if link else path), part) for path, link, part in links if part]
    assert [(str(path), part) for path, target, part in targets if part not in _anchors(target)] == []


def _anchors(document):
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", read(document)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_documents_use_words_of_today_and_one_semicolon_a_paragraph():
    odd = re.compile(
        r"\b(beside|anew|alone|mend|mends|mended|is said|are said|of which|thereby|hence)\b", re.IGNORECASE
    )
    texts = {document: FENCE.sub("", read(Path(document))) for document in DOCUMENTS}
    assert odd.findall(read(Path("docs/cli.md"))) == []  # the help of the commands
    parts = [(document, part) for document, text in texts.items() for part in re.split(r"\n\n|\n(?=[-|])", text)]
    assert [(document, word) for document, part in parts for word in odd.findall(part)] == []
    assert [(document, part) for document, part in parts if part[:1] != "|" and part.count(";") > 1] == []


def test_the_list_of_commands_is_that_of_the_command_line(tmp_path):
    listed = tmp_path / "cli.md"
    words = ["exgrpo.jobs.cli.main", "utils", "docs", "--name", "exgrpo", "--title", "The command line"]
    assert CliRunner().invoke(typer.cli.app, [*words, "--output", str(listed)]).exit_code == 0
    assert listed.read_text() == read(Path("docs/cli.md")), "Run `make cli-docs`."


def test_every_document_is_two_clicks_from_readme():
    near = _linked(Path("README.md"))
    reached = near.union(*map(_linked, near)) | {Path("README.md")}
    assert {Path(name) for name in [*DOCUMENTS, "CHANGELOG.md", "docs/cli.md"]} - reached == set()


def _linked(document):
    links = re.findall(r"\]\(([^)#\s]+\.md)", read(document))
    return {Path(os.path.normpath(document.parent / link)) for link in links}


def test_the_specification_in_readme_is_a_valid_one():
    block = re.search(r"```yaml\n(.*?)```", read(Path("README.md")), re.DOTALL)
    spec = parse_spec(yaml.safe_load(block[1]), "README.md")
    assert spec.algorithm.batch_size % spec.algorithm.mini_batch_size == 0


def test_document_of_the_data_says_what_a_row_of_each_table_is():
    section = read(Path("docs/data.md")).split("## Tables")[1].split("## Quantities")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in CODE_SPAN.findall(row)}
    assert named == set(models.metadata.tables), "docs/data.md, Tables: one row names each table of db/tables."


def test_the_tour_has_a_section_for_every_page_in_the_order_of_the_sidebar():
    sections = re.findall(r"^## (.+)$", read(Path("docs/tour.md")), re.MULTILINE)
    assert sections == [page.title for page in PAGES], "docs/tour.md: expected a section for each page."


def test_presets_named_in_documents_exist():
    named = set(re.findall(r"--preset ([\w.-]+)", "".join(read(Path(name)) for name in DOCUMENTS)))
    assert named
    assert named <= set(preset_names())
