"""Times of repeated work: by the clock, and this process's processor time, which depends less on the machine's load."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Milliseconds of each lap; computing is that of all threads of this process, not of a database server."""

    clock_ms: list[float] = field(default_factory=list)
    computing_ms: list[float] = field(default_factory=list)

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time what is done inside."""
        began_at, began_computing = time.perf_counter(), time.process_time()
        yield
        self.clock_ms.append(1000 * (time.perf_counter() - began_at))
        self.computing_ms.append(1000 * (time.process_time() - began_computing))

    def figures(self, name: str) -> dict[str, float]:
        """Print and return median and maximum by the clock, and the median of computing."""
        medians = {
            name: median(self.clock_ms),
            f"{name}_max": max(self.clock_ms),
            f"{name}_computing": median(self.computing_ms),
        }
        print(f"{name:<32}" + "".join(f"{value:10.1f}" for value in medians.values()))
        return medians
