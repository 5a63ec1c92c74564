"""Messages to people when a run needs them, through Apprise."""
