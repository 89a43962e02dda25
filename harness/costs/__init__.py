"""Cost against length: each measurement in a separate process."""
