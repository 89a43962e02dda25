"""Attention variants behind one interface; they know nothing of tasks, training or reports."""
