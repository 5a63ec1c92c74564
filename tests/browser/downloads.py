"""Downloads as a browser takes them."""

import re
from pathlib import Path


def download(page, label: str) -> tuple[str, str]:
    """Click the button, whose name ends in the label, and return what the file says and its suggested name."""
    with page.expect_download() as started:
        page.get_by_role("button", name=re.compile(rf"(^|\W|_){label}$")).click()
    assert started.value.failure() is None
    return Path(started.value.path()).read_text(encoding="utf-8"), started.value.suggested_filename
