"""The paper's figures and tables in its order: the result of each, its printed numbers, and its page here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PAPER, APPENDIX = PARTS = ("The paper", "Appendix")


Drawing = Literal[
    "method", "scores", "backbones", "curves", "buffer", "bounds", "validity", "valid_by_difficulty", "signals", "code",
    "cases", "rules", "settings", "costs", "counts",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Home:
    """A page that shows an entry live: its file's name, the link's words, and parameters of its address."""

    page: str
    label: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure or table of the paper."""

    key: str
    label: str
    title: str
    part: str
    finding: str
    """The paper's result, in one sentence."""
    drawing: Drawing
    homes: tuple[Home, ...]
    study: str = ""
    """The study that holds its printed numbers and its runs, where there is one."""
    table: str = ""
    """The printed table of that study, where the entry has numbers."""
    column: str = ""
    """The printed column that its figure draws."""
    others: tuple[str, ...] = ()
    """Further studies that hold rows of the same table."""
    quantities: tuple[str, ...] = ()
    """Metrics of the drawing `curves`."""


_REASONING = Home("run", "Reasoning", {"view": "Reasoning"})
_CODE = Home("run", "Code", {"view": "Reasoning", "part": "Code"})
_COMPARE = Home("compare", "Compare")
_BENCHMARKS = Home("benchmarks", "Benchmarks")


def _study(name: str) -> Home:
    return Home("methods", f"Study {name}", {"view": "Studies", "study": name})


ENTRIES = (
    Entry(
        "difficulty-scores", "Figure 1a", "Test performance by difficulty of the questions", PAPER,
        "Training on only medium questions gains most of the three, and all questions together gain more.",
        "scores", (_study("masked-difficulty"), _BENCHMARKS), "masked-difficulty", "tab:merged_results", "Avg.",
    ),
    Entry(
        "validity", "Figure 1b", "Entropy of valid and invalid reasoning", PAPER,
        "Among correct answers, valid chains of thought have lower entropy than invalid ones.",
        "validity", (_REASONING,),
    ),
    Entry(
        "valid-entropy", "Figure 1c", "Entropy of valid chains by difficulty", PAPER,
        "Valid chains on medium questions gather at low entropy; hard questions peak higher.",
        "valid_by_difficulty", (_REASONING,),
    ),
    Entry(
        "method", "Figure 2", "Overview of ExGRPO", PAPER,
        "Phase (a) keeps and draws experience, phase (b) mixes it with fresh rollouts into one objective.",
        "method", (Home("run", "Buffer", {"view": "Buffer"}), Home("run", "Step", {"view": "Step"})),
    ),
    Entry(
        "main-table", "Table 1", "Nine benchmarks on Qwen2.5-Math-7B", PAPER,
        "ExGRPO scores 48.3 in distribution and 58.3 out of it, 3.0 and 1.9 above on-policy training.",
        "scores", (_BENCHMARKS, _study("main-table")), "main-table", "tab:main", "ID Avg.",
    ),
    Entry(
        "backbones", "Figure 3", "Backbones and training variants", PAPER,
        "ExGRPO is above on-policy training on every backbone, and trains Llama-3.1-8B, where on-policy collapses.",
        "backbones", (_BENCHMARKS, _study("model-extension")), "model-extension", "tab:extension_res", "ID Avg.",
    ),
    Entry(
        "continuous-rewards", "Table 2", "Rewards of a reward model", PAPER,
        "With buckets of reward spread in place of correctness, ExGRPO gains 1.7 points over GRPO.",
        "scores", (_study("continuous-rewards"),), "continuous-rewards", "continuous rewards", "Avg.",
    ),
    Entry(
        "weak-dynamics", "Figure 4", "Learning dynamics of Llama-3.1-8B", PAPER,
        "On-policy training collapses with exploding entropy; replay of early lucky hits keeps it stable.",
        "curves", (_COMPARE, Home("run", "Run")), "model-extension",
        quantities=("reward/mean", "policy/entropy", "response/mean_tokens"),
    ),
    Entry(
        "buffer", "Figure 5", "Replay buffer and retired set", PAPER,
        "Late in training about half of the data set was solved at least once, half of that is retired.",
        "buffer", (Home("run", "Buffer over time", {"view": "Buffer", "part": "Over time"}), Home("run", "Run")),
        quantities=("buffer/ever_solved_share",),
    ),
    Entry(
        "data-conditions", "Figure 6", "Experience under different data conditions", PAPER,
        "Without question selection more questions retire and fewer stay; only a larger buffer scores no higher.",
        "curves", (_COMPARE, _study("ablations")), "ablations",
        quantities=("buffer/num_questions", "buffer/num_retired"),
    ),
    Entry(
        "variants", "Figure 7", "Validation of ExGRPO variants", PAPER,
        "Both selections beat random ones, which are little above on-policy training.",
        "curves", (_COMPARE, _study("ablations")), "ablations", quantities=("held_out",),
    ),
    Entry(
        "sensitivity", "Table 3", "Sensitivity to mu and sigma", PAPER,
        "Medium difficulty with sigma = 1 scores highest; wider, narrower and harder draws lose about 2 points.",
        "scores", (_study("sensitivity"), Home("run", "Step", {"view": "Step"})),
        "sensitivity", "tab:sigma", "ID Avg.",
    ),
    Entry(
        "bounds", "Proposition 2", "Variance of replayed gradients", APPENDIX,
        "The variance of replay is governed by E[W²U²]; a small largest weight M and shaping keep it down.",
        "bounds", (Home("run", "Run"),), quantities=("variance/bound_general",),
    ),
    Entry(
        "settings", "Table 4", "Training hyperparameters", APPENDIX,
        "128 questions a step, 8 rollouts each, two updates, learning rate 1e-6, no CLIP, no token mean.",
        "settings", (Home("new_run", "New run", {"preset": "paper-exgrpo"}),),
    ),
    Entry(
        "extension-table", "Table 5", "Nine benchmarks on other backbones", APPENDIX,
        "Gains in distribution reach 5.3 points (Qwen2.5-Math-1.5B), and 29.6 out of it (Llama-3.1-8B).",
        "scores", (_BENCHMARKS, _study("model-extension")), "model-extension", "tab:extension_res", "ID Avg.",
    ),
    Entry(
        "ablations", "Table 6", "Ablations", APPENDIX,
        "Every part counts; without policy shaping the average falls from 48.3 to 41.2.",
        "scores", (_study("ablations"), _study("repo"), _BENCHMARKS), "ablations", "tab:ablation", "Avg.", ("repo",),
    ),
    Entry(
        "shaping-entropy", "Figure 8", "Policy entropy with and without shaping", APPENDIX,
        "Without shaping, entropy falls below on-policy training at once, and exploration is lost.",
        "curves", (_COMPARE,), "ablations", quantities=("policy/entropy",),
    ),
    Entry(
        "retired-review", "Table 7", "Reviewing retired questions", APPENDIX,
        "Drawing 10% of the retired questions again every 25 steps costs 3.1 points.",
        "scores", (_study("retired-review"),), "retired-review", "tab:replay", "ID Avg.",
    ),
    Entry(
        "overhead", "Table 8", "Replay memory and time per step", APPENDIX,
        "The buffer of the largest run takes 1.77 GB, and a step 19% longer.",
        "costs", (_COMPARE, _study("replay-overhead")), "replay-overhead", "tab:compute_statics",
        "Avg. Step (s)", quantities=("seconds/step",),
    ),
    Entry(
        "utilization", "Text", "Data utilization", APPENDIX,
        "At equal steps ExGRPO sees half as many fresh questions, and scores higher.",
        "costs", (_COMPARE,), quantities=("rollouts/fresh_total",),
    ),
    Entry(
        "difficulty-table", "Table 9", "Six benchmarks by difficulty", APPENDIX,
        "Only medium questions reach 42.3, easy 41.1 and hard 41.6; all together 45.3.",
        "scores", (_study("masked-difficulty"), _BENCHMARKS), "masked-difficulty", "tab:merged_results", "Avg.",
    ),
    Entry(
        "mini-batch-counts", "Table 10", "Questions per mini-batch under masking", APPENDIX,
        "The three masked groups train on 21 to 24 questions in each mini-batch of 64.",
        "counts", (_study("mini-batch-counts"), _COMPARE), "mini-batch-counts", "tab:masked_stats",
        "# Avg. Mini-Batch", quantities=("batch/questions_left",),
    ),
    Entry(
        "mini-batch-curves", "Figure 9", "Questions per mini-batch over steps", APPENDIX,
        "The three masked groups see similar amounts of data throughout.",
        "curves", (_COMPARE, _study("mini-batch-counts")), "mini-batch-counts", quantities=("batch/questions_left",),
    ),
    Entry(
        "signals", "Figure 10", "Entropy and perplexity of right and wrong reasoning", APPENDIX,
        "Both are lower for valid chains in every bucket, and the margin of entropy is wider.",
        "signals", (_REASONING, _study("entropy-perplexity")), "entropy-perplexity",
    ),
    Entry(
        "code-rules", "Table 11", "Rules that detect code", APPENDIX,
        "17 cues flag a response that holds Python code.",
        "rules", (_CODE,),
    ),
    Entry(
        "code-table", "Table 12", "Code, entropy and valid reasoning", APPENDIX,
        "Correct answers with code have about twice the entropy and 9 to 12 points fewer valid chains.",
        "code", (_CODE, _study("code-analysis")), "code-analysis", "tab:code_analysis", "Entropy with code",
    ),
    Entry(
        "cases", "Cases 1 to 3", "The snowball effect in examples", APPENDIX,
        "Two correct answers to one question: the uncertain one checks itself with code that does not hold.",
        "cases", (Home("run", "Cases", {"view": "Reasoning", "part": "Cases"}),), "code-analysis",
    ),
)  # fmt: skip
BY_KEY = {entry.key: entry for entry in ENTRIES}
