"""The web server: gate, sign-in, the shell around pages, refreshes."""

import logging

# Streamlit warns here of caches that are declared before its server runs, as the imports of the server do.
logging.getLogger("streamlit.runtime.caching.cache_data_api").addFilter(lambda record: record.levelno > logging.WARNING)
