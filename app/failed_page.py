"""What a page shows instead of a traceback: one sentence, and where the details are."""

import logging

import streamlit as st

from app.components.widgets import notice
from app.queries.last_answers import NoAnswerError

LOG = "streamlit.error_util"
"""The log to which Streamlit writes the traceback of a failed page, before it asks what to show."""


def is_fault(record: logging.LogRecord) -> bool:
    """Return whether a record of `LOG` needs a traceback; an unavailable database does not."""
    return not (record.exc_info and isinstance(record.exc_info[1], NoAnswerError))


def show(error: Exception) -> bool:
    """Show one sentence instead of a traceback. True tells Streamlit that the error is handled.

    A page that was never read while the database is unavailable reloads by itself, through the banner.
    """
    if isinstance(error, NoAnswerError):
        return True
    detail = str(error).strip().splitlines()
    sentence = detail[0] if detail else type(error).__name__
    notice.show("error", "This page failed", f"{sentence} (The server's log has the details.)")
    st.button("Try again", icon=":material/refresh:", key="failure-retry")
    return True
