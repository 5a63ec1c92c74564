"""What a page shows instead of a traceback: one sentence, and where the rest stands."""

import logging

import streamlit as st

from app.components import notice
from app.last_answers import NoAnswerError

_LOGGER = logging.getLogger(__name__)


def show(error: Exception) -> bool:
    """Show one sentence in place of a traceback; that goes to the server's log. True tells Streamlit it is done.

    A page that was never read while the database is away comes by itself, by the banner that says so.
    """
    if isinstance(error, NoAnswerError):
        return True
    _LOGGER.error("a page failed", exc_info=error)
    detail = str(error).strip().splitlines()
    sentence = detail[0] if detail else type(error).__name__
    notice.show("error", "This page could not be shown", f"{sentence} (The server's log has the details.)")
    st.button("Try again", icon=":material/refresh:", key="failure-retry")
    return True
