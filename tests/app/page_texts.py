"""What a page tested in this process says."""

from streamlit.testing.v1 import AppTest


def texts(page: AppTest) -> list[str]:
    """Return the texts, headings and captions of a page."""
    return [element.value for element in [*page.text, *page.markdown, *page.subheader, *page.caption]]


def has_text(page: AppTest, part: str) -> bool:
    """Return whether one of them contains `part`."""
    return any(part in text for text in texts(page))
