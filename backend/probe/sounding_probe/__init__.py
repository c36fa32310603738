"""Runs inside vLLM's worker processes: stage timers (`stages`) and the table of what they time (`hooks`)."""
