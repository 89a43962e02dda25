"""Cost against length: each measurement in a process of its own."""
