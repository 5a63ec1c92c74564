"""What a page shows instead of a traceback: one sentence, and where the rest stands."""

import logging

import streamlit as st

from app.components.widgets import notice
from app.queries.last_answers import NoAnswerError

LOG = "streamlit.error_util"
"""Where Streamlit writes the traceback of a page that fails, before it asks what to show."""


def is_fault(record: logging.LogRecord) -> bool:
    """Return whether a record of `LOG` is worth a traceback; that the database is away is not."""
    return not (record.exc_info and isinstance(record.exc_info[1], NoAnswerError))


def show(error: Exception) -> bool:
    """Show one sentence in place of a traceback. True tells Streamlit it is done.

    A page that was never read while the database is away comes by itself, by the banner that says so.
    """
    if isinstance(error, NoAnswerError):
        return True
    detail = str(error).strip().splitlines()
    sentence = detail[0] if detail else type(error).__name__
    notice.show("error", "This page could not be shown", f"{sentence} (The server's log has the details.)")
    st.button("Try again", icon=":material/refresh:", key="failure-retry")
    return True
