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


PRODUCTS = """
import ctypes
import os
import sys
import torch
from jobs.machine.allocator import keep_freed_memory

os.environ.update(setting.split("=") for setting in sys.argv[1:])
keep_freed_memory()
torch.set_num_threads(1)
weight, rows = torch.ones(768, 576), torch.ones(600, 576)
size = 0
for num_rows in (1, *range(200, 600)):
    torch.ops.mkldnn._linear_pointwise(rows[:num_rows], weight, None, "none", [], "")
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    size = size or pages
print(pages - size)
"""


def test_code_of_products_of_other_shapes_does_not_fill_memory():
    grown = []
    for settings in (["ONEDNN_PRIMITIVE_CACHE_CAPACITY=1024"], []):
        command = [sys.executable, "-c", PRODUCTS, *settings]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        grown.append(int(done.stdout))
    assert grown[1] < 0.75 * grown[0]
