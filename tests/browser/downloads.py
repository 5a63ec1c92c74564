"""Downloads as a patient user takes them: asked for again where the page was renewed between click and file."""

import re
from pathlib import Path

TRIES = 3


def download(page, label: str) -> tuple[str, str]:
    """Click the button, whose name ends in the label, and return what the file says and its suggested name."""
    reasons = []
    for _ in range(TRIES):
        with page.expect_download() as started:
            page.get_by_role("button", name=re.compile(rf"(^|\W|_){label}$")).click()
        reason = started.value.failure()
        if reason is None:
            return Path(started.value.path()).read_text(encoding="utf-8"), started.value.suggested_filename
        reasons.append(reason)
        page.wait_for_timeout(2000)
    raise AssertionError(f"{label}: no file came ({', '.join(reasons)})")
