"""The reads of the pages: `ask` puts a query of `db.queries` to the database; combined reads are functions here."""
