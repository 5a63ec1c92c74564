"""What pages ask, answered in plain rows; one file per page.

Queries whose answer would mislead without the run or the judge raise `db.rows.runs.UnknownRunError`; others are empty.
"""
