import contextlib
import gc
import subprocess
import sys

import pytest

from exgrpo_core.process_memory import NEW_OBJECTS, collect_as_usual, collect_rarely, gc_paused


@pytest.fixture(autouse=True)
def _collector():
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*threshold)


def test_nothing_is_collected_meanwhile_and_what_came_is_not_looked_at_again():
    with contextlib.suppress(ImportError), gc_paused():
        assert not gc.isenabled()
        kept = [[] for _ in range(5)]
        raise ImportError
    assert gc.isenabled()
    assert not any(item is kept for item in gc.get_objects())
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def test_collecting_rarely_ends():
    before = gc.get_threshold()
    collect_rarely()
    assert gc.get_threshold()[0] == NEW_OBJECTS != before[0]
    kept: list[list] = [[]]
    collect_as_usual()
    assert gc.get_threshold() == before
    assert not any(item is kept for item in gc.get_objects())


def printed(program, *words):
    done = subprocess.run([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


PROGRAM = """
import resource
import torch
from exgrpo_core.process_memory import keep_freed_memory

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
    num_given_back, num_kept = printed(PROGRAM)
    assert num_kept < num_given_back / 10


PRODUCTS = """
import ctypes
import os
import sys
import torch
from exgrpo_core.process_memory import keep_freed_memory

os.environ.update(setting.split("=") for setting in sys.argv[1:])
keep_freed_memory()
torch.set_num_threads(1)
weight, rows = torch.ones(768, 576), torch.ones(600, 576)
size = 0
for num_rows in (1, *range(200, 600, 4)):
    torch.ops.mkldnn._linear_pointwise(rows[:num_rows], weight, None, "none", [], "")
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    size = size or pages
print(pages - size)
"""


def test_code_of_products_of_other_shapes_does_not_fill_memory():
    [by_default], [grown] = printed(PRODUCTS, "ONEDNN_PRIMITIVE_CACHE_CAPACITY=1024"), printed(PRODUCTS)
    assert grown < 0.75 * by_default


FREED = """
import torch
from exgrpo_core.process_memory import FreedMemory, keep_freed_memory

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
    first, second = printed(FREED)
    assert first > 190 * 2**22
    assert second < 2**22
