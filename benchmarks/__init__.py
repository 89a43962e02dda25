"""Scripts that measure a claim and print JSON lines; they are not tests."""
