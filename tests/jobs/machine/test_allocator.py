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


FREED = """
import torch
from jobs.machine.allocator import FreedMemory, keep_freed_memory

def num_bytes():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])

def fill_and_free():
    arrays = [torch.ones(2**20) for _ in range(200)]
    del arrays[:-1]  # the last one lies above the freed ones
    return arrays

keep_freed_memory()
freed_memory = FreedMemory(seconds_between=60.0)
for _ in range(2):
    last = fill_and_free()
    before = num_bytes()
    freed_memory.give_back()
    print(before - num_bytes())
"""


def test_freed_memory_between_live_arrays_is_given_back_but_not_again_at_once():
    done = subprocess.run([sys.executable, "-c", FREED], stdout=subprocess.PIPE, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert first > 190 * 2**22
    assert second < 2**22
