"""Cost against length: each cell measured in a process of its own."""
