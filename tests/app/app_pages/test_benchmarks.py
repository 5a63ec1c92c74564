import json
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from exgrpo.app.formats import literal
from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.actions.preflight.data_preview import keep_benchmark_file, look_at_benchmark
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.training.data_rows import DataError
from tests.app import recorded, scored
from tests.app.charts import figures
from tests.app.page_texts import has_text, tables, texts
from tests.app.recorded import HOSTILE
from tests.db.recorded_scores import record_scores
from tests.jobs.evaluation.analysis import recorded_samples

pytestmark = pytest.mark.slow


def table_html(page):
    (found,) = [element.proto.body for element in page.get("html") if "<table" in element.proto.body]
    return found


def test_page_without_scores_shows_the_papers_and_leads_to_the_form_with_the_model_filled_in(runs_root, open_page):
    page = open_page("benchmarks")
    assert "No scores yet" in texts(page)
    assert "GPG-Zero" in table_html(page)
    assert has_text(page, "the paper prints 41.6, but the mean of its cells is 53.73")
    assert "benchmarks?start=true&amp;target=sail%2FQwen2.5-Math-7B-Oat-Zero&amp;template=chat" in table_html(page)
    page = open_page("benchmarks", start="true", target="sail/Qwen2.5-Math-7B-Oat-Zero", template="chat")
    assert "rzzhan/ExGRPO-Llama3.1-8B-Zero (paper: ExGRPO)" in page.multiselect(key="evaluate-models").options
    assert page.multiselect(key="evaluate-models").value == ["sail/Qwen2.5-Math-7B-Oat-Zero"]
    send(page)
    (run,) = list_run_directories(runs_root)
    assert (run.job_spec().model.source, run.job_spec().template) == ("sail/Qwen2.5-Math-7B-Oat-Zero", "chat")


@pytest.mark.usefixtures("played_shared")
def test_form_offers_the_newest_checkpoints_of_runs_that_have_done_a_step(open_page):
    offered = open_page("benchmarks", start="true").multiselect(key="evaluate-models").options
    assert "whole replay, newest checkpoint" in offered
    assert "waiting, newest checkpoint" not in offered


@pytest.mark.usefixtures("scored_shared")
def test_scheme_tables_and_search_come_from_the_address(open_page):
    page = open_page("benchmarks", scheme="training", tables="ablations", models="step 7310")
    markup = table_html(page)
    assert "w/o Shaping" in markup
    assert "PRIME-Zero" not in markup
    assert "step 30" not in markup
    assert "0.0" in markup
    assert "No model matches" in texts(open_page("benchmarks", models="nothing like it"))


@pytest.mark.usefixtures("scored_shared")
def test_item_of_the_address_shows_both_answers_until_it_or_another_model_closes_it(open_page):
    page = open_page("benchmarks", first="eval-early", second="eval-late", on="math500", item="q100")
    answers = [element.value for element in page.code]
    assert "so \\boxed{1}" in answers
    assert any(answer.startswith(HOSTILE[:20]) and "\x1b" not in answer for answer in answers)
    assert "2+2?" in answers
    assert "Gold answer: 4" in texts(page)
    assert has_text(page, "paper wrong, training wrong")
    page.button(key="close-item").click().run()
    assert "item" not in page.query_params
    page.query_params["item"] = "q100"
    page.multiselect(key="choose-first").set_value(["eval-slice"]).run()
    assert page.query_params["first"] in (["eval-slice"], "eval-slice")
    assert "item" not in page.query_params
    assert has_text(page, "These scores were measured differently")
    assert has_text(page, "AIME24: questions, template")


def test_of_two_models_of_one_name_each_is_chosen_and_compared(scored_runs, open_page):
    recorded.record(scored_runs, replace(recorded.FINISHED, run_id="run-half"))
    database = open_database(None, scored_runs)
    record_scores(database, scored_runs, scored.whole("math500", 0.3, run="run-half"), run_id="eval-half")
    database.close()
    page = open_page("benchmarks", models="step 30")
    names = ["ExGRPO: exgrpo whole (half), step 30", "ExGRPO: exgrpo whole (finished), step 30"]
    assert all(name in table_html(page) for name in names)
    choice = page.multiselect(key="choose-second")
    assert [label.partition(", step")[0] for label in choice.options] == [name.partition(", step")[0] for name in names]
    choice.set_value(["eval-late"]).run()
    page.multiselect(key="choose-first").set_value(["eval-half"]).run()
    [compared] = [element.value for element in tables(page) if "Won" in element.value]
    assert [*compared["First"], *compared["Second"]] == pytest.approx([30.0, 60.0])


def test_evaluations_under_way_and_failed_are_counted_and_lead_to_their_list(runs_root, open_page):
    scored.record_unfinished(runs_root)
    page = open_page("benchmarks")
    links = {link.proto.label: parse_qs(link.proto.query_string) for link in page.get("page_link")}
    assert links["1 evaluation running or queued"] == {"kind": ["Evaluations"], "state": ["Active"]}
    assert links["1 evaluation failed or lost"] == {"kind": ["Evaluations"], "state": ["Failed or lost"]}
    [failed] = tables(open_page("runs", kind="Evaluations", state="Failed or lost"))
    assert list(failed.value["Reason"]) == [scored.FAILURE]
    [listed] = tables(open_page("runs", kind="Evaluations"))
    assert sorted(listed.value["Progress"])[-1] == pytest.approx(40.0)
    assert scored.FAILURE in list(listed.value["Reason"])


def send(page, **values):
    if "models" in values:
        page.multiselect(key="evaluate-models").set_value(values.pop("models"))
    for key, value in values.items():
        page.number_input(key=f"evaluate-{key}").set_value(value)
    (button,) = [element for element in page.button if element.label == "Start evaluation"]
    return button.click().run()


def test_evaluation_is_queued_and_what_is_not_allowed_is_refused(runs_root, open_page):
    page = send(open_page("benchmarks", start="true", target="nobody@5"))
    assert has_text(page, "**Not started**")
    assert has_text(page, "nobody")
    page = open_page("benchmarks", start="true", target="owner/model")
    page.multiselect(key="evaluate-rewards").set_value(["os:getcwd"])
    assert has_text(send(page), "which this machine does not run")
    assert list_run_directories(runs_root) == []
    page.multiselect(key="evaluate-rewards").set_value(["format", "answer"])
    send(page, questions=5, n=2)
    (run,) = list_run_directories(runs_root)
    spec = run.job_spec()
    assert (spec.kind, spec.model.source, spec.generator) == ("eval", "owner/model", "embedded")
    (choice,) = spec.benchmarks
    assert (choice.name, choice.num_questions, choice.samples_per_question) == ("math500", 5, 2)
    assert spec.reward_parts == ("format", "answer")


def test_several_models_are_scored_in_one_go_and_one_that_is_refused_is_named(runs_root, open_page):
    page = open_page("benchmarks", start="true", target="owner/model")
    send(page, models=["owner/model", "rzzhan/ExGRPO-Llama3.1-8B-Zero", "nobody@5"], n=2)
    assert has_text(page, "Not started: nobody@5")
    specs = [run.job_spec() for run in list_run_directories(runs_root)]
    assert sorted(spec.model.source for spec in specs) == ["owner/model", "rzzhan/ExGRPO-Llama3.1-8B-Zero"]
    assert {spec.benchmarks[0].samples_per_question for spec in specs} == {2}


ROWS = '{"problem": "1+1?", "answer": 2}\n{"problem": "2+2?", "answer": 4}\n'


def test_form_offers_ones_own_benchmarks_and_names_a_wrong_declaration(runs_root, open_page):
    folder = runs_root / "workbench" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "sums.jsonl").write_text(ROWS)
    page = open_page("benchmarks", start="true", target="owner/model")
    assert "sums" in page.multiselect(key="evaluate-benchmarks").options
    page.multiselect(key="evaluate-benchmarks").set_value(["sums", "math500"])
    send(page)
    (run,) = list_run_directories(runs_root)
    sources = {choice.name: choice.source for choice in run.job_spec().benchmarks}
    assert sources == {"sums": str(folder / "sums.jsonl"), "math500": None}
    (folder / "a.yaml").write_text("sums: {sauce: a}")
    page = open_page("benchmarks", start="true")
    assert has_text(page, "a.yaml: sums: sauce: there is no such field")


def test_a_named_file_is_read_shown_as_it_is_asked_and_scored_under_its_name(runs_root, open_page, tmp_path):
    (tmp_path / "My sums.v2.jsonl").write_text(ROWS)
    page = open_page("benchmarks", start="true", target="owner/model", template="none")
    page.text_input(key="evaluate-source").set_value(f"{tmp_path}/nothing.jsonl").run()
    assert has_text(page, "Not a benchmark")
    assert page.button[-1].disabled
    page.text_input(key="evaluate-source").set_value(f"{tmp_path}/My sums.v2.jsonl").run()
    assert has_text(page, "Your benchmark my\\_sums")
    assert "1+1?" in [code.value for code in page.code]
    assert has_text(page, "Gold answer: 2, graded as math")
    assert page.multiselect(key="evaluate-benchmarks-my_sums").value == ["my_sums"]
    (tmp_path / "My sums.v2.jsonl").write_text(ROWS.replace("1+1?", "1+2?"))
    assert "1+2?" in [code.value for code in page.run().code]
    page.selectbox(key="evaluate-kind").set_value("choice").run()
    assert has_text(page, "Gold answer: 2, graded as choice")
    page = send(page)
    (run,) = list_run_directories(runs_root)
    (choice,) = run.job_spec().benchmarks
    assert (choice.name, choice.source, choice.answer_kind) == ("my_sums", f"{tmp_path}/My sums.v2.jsonl", "choice")
    assert page.query_params["run"] in (run.run_id, [run.run_id])


def test_a_file_handed_in_is_kept_once_and_another_of_its_name_beside_it(runs_root):
    kept = keep_benchmark_file(runs_root, "aime24.jsonl", ROWS.encode())
    assert kept == str(runs_root / "workbench" / "benchmarks" / "my_aime24.jsonl")
    assert keep_benchmark_file(runs_root, "aime24.jsonl", ROWS.encode()) == kept
    assert keep_benchmark_file(runs_root, "aime24.jsonl", ROWS[:33].encode()).endswith("my_aime24_2.jsonl")
    assert look_at_benchmark(runs_root, kept).name == "my_aime24"
    for name, content in (("a.csv", b"question"), ("../b.jsonl", b"{}\n"), ("c.jsonl", b"no rows")):
        with pytest.raises(DataError):
            keep_benchmark_file(runs_root, name, content)
    assert sorted(path.name for path in (runs_root / "workbench" / "benchmarks").iterdir()) == [
        "my_aime24.jsonl",
        "my_aime24_2.jsonl",
    ]


def test_a_file_of_the_papers_questions_serves_their_benchmarks(runs_root, tmp_path):
    row = {"data_source": "aime", "reward_model": {"ground_truth": "1"}}
    rows = [row | {"prompt": [{"role": "user", "content": f"q{number}"}]} for number in range(30)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    look = look_at_benchmark(runs_root, str(tmp_path / "test.jsonl"))
    assert (look.papers, look.num_questions) == (("aime24",), 30)


def test_generator_vllm_says_that_no_environment_has_it_and_what_makes_one(runs_root, open_page, monkeypatch, tmp_path):
    monkeypatch.delenv(VERL_PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr("exgrpo.jobs.machine.engine_environments.PROJECT_ROOT", tmp_path)
    page = open_page("benchmarks", start="true", target="owner/model")
    sentence = "no environment has vLLM; make one with"
    assert has_text(page, sentence)
    page.selectbox(key="evaluate-generator").set_value("vllm")
    page = send(page, questions=5)
    assert [text for text in texts(page) if text.startswith(rf"generator\: {sentence}")]
    assert not list_run_directories(runs_root)


@pytest.mark.usefixtures("scored_shared")
def test_scores_over_the_number_of_answers_are_drawn_for_the_models_and_the_difficulty_of_the_address(open_page):
    page = open_page("benchmarks", curves="true", of="math500", over="eval-early,eval-late")
    charts = figures(page)
    over_k = [chart for chart in charts if chart["layout"]["xaxis"]["title"]["text"] == "k"]
    names = [[trace["name"] for trace in chart["data"] if trace.get("showlegend", True)] for chart in over_k]
    assert [len(models) for models in names] == [2, 2, 2]
    assert len({str(chart["layout"]["yaxis"]["range"]) for chart in over_k}) == 1
    assert not any(chart["layout"]["showlegend"] for chart in over_k)
    assert sum(caption.value in map(literal, names[0]) for caption in page.caption) == 2
    assert has_text(page, "not another training run")
    assert has_text(page, "Log-probs of answers are not recorded: ExGRPO")
    page = open_page("benchmarks", curves="true", of="aime24", over="eval-slice")
    assert has_text(page, "No answers to such questions are recorded")
    query = {"curves": "true", "of": "math500", "over": "eval-early,eval-late"}
    page = open_page("benchmarks", **query, difficulty="medium")
    assert has_text(page, "0 easy, 1 medium, 0 hard. Difficulty is")
    assert not has_text(page, "No answers to such questions")
    assert has_text(open_page("benchmarks", **query, difficulty="hard"), "No answers to such questions are recorded")


def listed(page):
    (table,) = [table for table in tables(page) if "Gold answer" in table.value]
    frame = table.value
    return [tuple(row) for row in frame[[name for name in frame if name in _LISTED]].to_numpy().tolist()]


_LISTED = ("Question", "Correct", "A correct", "B correct")


@pytest.fixture
def answered(scored_runs):
    """Two evaluations of sums: a is right by the paper's rules, and one of its answers is truncated."""
    scored.record_own_benchmark(scored_runs)
    of_early = {"a": ["4", "4"], "b": ["5", "5"], "c": ["4", "5"]}
    of_late = {"a": ["5", "5"], "b": ["4", "5"], "c": ["4", "4"], "d": ["4", "4"]}
    for run_id, answers in (("eval-own-early", of_early), ("eval-own-late", of_late)):
        for name, boxes in answers.items():
            recorded_samples.append(scored_runs / run_id, name, [(box, None) for box in boxes], text=f"{name}?")
    return scored_runs


@pytest.mark.usefixtures("answered")
def test_samples_of_an_evaluation_are_filtered_by_grade_and_opened_one_after_the_other(open_page):
    page = open_page("run", run="eval-own-early", view="Samples")
    assert listed(page) == [("a?", 100), ("b?", 0), ("c?", 50)]
    filters = next(group for group in page.get("button_group") if group.label == "Questions")
    assert filters.options == ["All (3)", "Correct (1)", "Sometimes correct (1)", "Wrong (1)"]
    filters.set_value("Wrong").run()
    assert listed(page) == [("b?", 0)]
    assert len(listed(open_page("run", run="eval-own-early", view="Samples", scheme="training", shown="Wrong"))) == 3
    page = open_page("run", run="eval-own-early", view="Samples", item="b")
    assert {"Question b", "Gold answer: 4"} <= {*texts(page)}
    assert "so \\boxed{5}" in [element.value for element in page.code]
    assert has_text(page, "paper wrong, training wrong · 2 tokens")
    page.button(key="next-item").click().run()
    assert "Question c" in texts(page)
    assert page.button(key="next-item").disabled


@pytest.mark.parametrize(
    "shown",
    [
        {"first": "eval-early", "second": "eval-late", "on": "math500", "item": "q100"},
        {"curves": "true", "of": "math500", "over": "eval-early,eval-late"},
    ],
)
def test_damaged_answers_are_named_where_answers_are_shown(open_page, scored_runs, shown):
    path = scored_runs / "eval-late" / "evaluation" / "math500-0001.jsonl"
    path.write_text(path.read_text().replace('"seed"', '"seee"'))
    page = open_page("benchmarks", **shown)
    assert has_text(page, "Recorded answers are damaged")
    assert has_text(page, "evaluation/math500-0001.jsonl: what was written at byte 0 is damaged and was skipped.")
