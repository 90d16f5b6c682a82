"""One algorithm for all SQL databases; what differs between them is a dialect."""
