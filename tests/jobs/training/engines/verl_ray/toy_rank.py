"""A rank that binds itself to torchrun as `sft_entry` does, before it would load what training needs, and waits."""

import time
from unittest.mock import patch

from exgrpo.jobs.training.engines.verl_ray import sft_entry

WAIT_SECONDS = 600.0

if __name__ == "__main__":
    with patch.object(sft_entry, "_train", lambda _words: time.sleep(WAIT_SECONDS)):
        sft_entry.main([])
