"""The reads of the pages: `ask` puts a query of `exgrpo.db.queries` to the database; combined reads are here."""
