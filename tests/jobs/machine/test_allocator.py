import subprocess
import sys

PROGRAM = """
import resource
import torch
from jobs.machine.allocator import keep_freed_memory

def num_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

num_given_back = num_faults()
keep_freed_memory()
num_faults()
print(num_given_back, num_faults())
"""


def test_freed_memory_is_used_again_without_new_pages():
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    num_given_back, num_kept = map(int, done.stdout.split())
    assert num_kept < num_given_back / 10
