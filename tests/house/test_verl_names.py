"""docs/verl-names.csv names what the plug-in uses of verl, and nothing else."""

import re

from tests.house.verl_names import FOLDER, awaited, imported, sources, table


def test_it_has_every_name_that_is_imported_or_awaited_and_no_other():
    used = {name for tree in sources().values() for name in (*imported(tree).values(), *awaited(tree))}
    assert {use.name for use in table()} == used


def test_each_assignment_to_what_is_verls_is_called_a_patch():
    patched = {member for use in table() if use.how == "patches" for member in use.members}
    text = "\n".join(path.read_text() for path in FOLDER.glob("*.py"))
    verls = r"main|verl_queue|tracking|trainer_base|bucketed_weight_transfer"
    assert {*re.findall(rf"^ *(?:{verls})\.(\w+)[.\w]* = ", text, re.MULTILINE)} == patched


ADAPTERS = {
    "verl.trainer.ppo.v1": "trainer_v1.py", "verl.trainer.main_ppo.": "trainer_v1.py",
    "verl.trainer.main_ppo_v0": "trainer_v0.py", "verl.trainer.ppo.ray_trainer": "trainer_v0.py",
}  # fmt: skip


def test_each_of_verls_trainers_and_its_queue_are_known_to_one_module():
    homes = {
        (prefix, path.name)
        for path, tree in sources().items()
        for name in imported(tree).values()
        for prefix in ADAPTERS
        if name.startswith(prefix)
    }
    assert homes == set(ADAPTERS.items())
    queue = re.compile(r"^(import|from) transfer_queue\b", re.MULTILINE)
    assert [path.name for path in sources() if queue.search(path.read_text())] == ["rollout_queue.py"]
