"""The tabs of the pages Run and Methods that fill a file; each is drawn only while it is open."""
