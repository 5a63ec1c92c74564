"""Streamlit's queue of messages to a browser, which here forgets nothing when a fragment begins to refresh."""

from streamlit.runtime.forward_msg_queue import ForwardMsgQueue


def keep_what_fragments_follow() -> None:
    """Let a fragment's refresh leave what the queue still holds of earlier runs.

    Streamlit 1.67 takes out what the same fragment drew before, since the refresh draws it again. Where that was part
    of a run of the whole page that a busy server has not sent yet, the browser takes the page as finished without it,
    removes the fragment's old place, and puts all that follows into wrong places: empty tabs, or a white page.
    """
    clear = ForwardMsgQueue.clear

    def clear_unless_a_fragment_begins(
        queue: ForwardMsgQueue, retain_lifecycle_msgs: bool = False, fragment_ids_this_run: list[str] | None = None
    ) -> None:
        if fragment_ids_this_run:
            queue._delta_index_map = {}  # what comes is sent after what is there, not in its place
        else:
            clear(queue, retain_lifecycle_msgs, fragment_ids_this_run)

    ForwardMsgQueue.clear = clear_unless_a_fragment_begins  # type: ignore[method-assign]
