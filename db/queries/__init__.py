"""What pages ask, answered in plain rows; one file per page.

Queries whose answer would mislead without the run or the judge raise `exgrpo.db.rows.runs.UnknownRunError`; others are
empty.
"""
