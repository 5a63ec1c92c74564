import shutil
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from db.connections.opening import UnknownSchemaError, current_revision, newest_revision, open_database, reset, upgrade
from db.queries.trajectory_list import list_snippets
from db.rows.trajectories import TrajectoryFacets
from db.tables import models
from jobs.supervisor.open_index import rebuild_index
from jobs.training.warm_start import SHIPPED_WEIGHTS
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.db.released_databases import STORED, store
from tests.db.table_contents import contents

REPOSITORY = Path(__file__).resolve().parents[3]
OF_ONE_DIALECT = ("trajectory_search", "trajectory_texts_by_word", "search", "runs_by_kind")


def is_ours(_object, name, _kind, _is_reflected, _other):
    """What is one dialect's own, such as full-text search, is in the revision alone."""
    return not (name or "").startswith(OF_ONE_DIALECT)


def test_a_new_database_has_the_newest_schema_and_upgrading_again_changes_nothing(database):
    assert current_revision(database) == newest_revision()
    assert upgrade(database) == newest_revision()


def test_an_unknown_schema_is_refused_with_the_remedy_and_left_as_it_is(database, tmp_path):
    url = database.engine.url.render_as_string(hide_password=False)
    database.write(lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnknownSchemaError):
        open_database(url, tmp_path)
    assert current_revision(database) == "9999"
    reset(database)
    open_database(url, tmp_path).close()


def test_a_reset_drops_everything_and_taking_in_again_gives_it_back(database, tmp_path):
    run = new_run(tmp_path)
    record_attempt(run, range(1, 6))
    ingest_run(database, run)
    before = contents(database)
    reset(database)
    assert not any(contents(database).values())
    assert list_snippets(database, TrajectoryFacets(words="trajectory")) == []
    ingest_run(database, run)
    assert contents(database) == before
    assert len(list_snippets(database, TrajectoryFacets(words="trajectory"), limit=100)) == len(before["trajectories"])


@pytest.mark.parametrize("release", [*sorted(STORED.glob("*.tar.gz")), "this one"])
# Alembic's reflection meets the table of FTS5, which has no types.
@pytest.mark.filterwarnings("ignore:.*reflect.*|Did not recognize type")
def test_upgraded_database_of_a_release_holds_what_is_built_again_from_its_files(release, tmp_path):
    archive = store(tmp_path) if release == "this one" else release
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    runs_root = tmp_path / "runs"
    with closing(open_database(None, runs_root)) as database:
        upgraded = contents(database)
        context = MigrationContext.configure(database.engine.connect(), opts={"include_object": is_ours})
        assert compare_metadata(context, models.metadata) == []
        context.connection.close()
    assert rebuild_index(runs_root, None) == 1
    with closing(open_database(None, runs_root)) as database:
        assert contents(database) == upgraded
    assert upgraded["trajectories"]


@pytest.mark.slow
def test_revisions_and_shipped_weights_are_part_of_an_installed_wheel(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for package in ("app", "jobs", "db", "exgrpo_core"):
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    program = "import sys, setuptools.build_meta as build; print(build.build_wheel(sys.argv[1]))"
    built = tmp_path / "dist"
    built.mkdir()
    subprocess.run(
        [sys.executable, "-c", program, str(built)], cwd=tmp_path, check=True, capture_output=True, timeout=300
    )
    installed = tmp_path / "installed"
    shutil.unpack_archive(next(built.glob("*.whl")), installed, "zip")
    imports = "from pathlib import Path; from db.connections.opening import open_database"
    open_it = f"{imports}; open_database(None, Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {open_it}", str(tmp_path)],
        cwd=installed,
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert (tmp_path / "workbench" / "workbench.db").is_file()
    assert (installed / "jobs" / "training" / SHIPPED_WEIGHTS.name).is_file()
