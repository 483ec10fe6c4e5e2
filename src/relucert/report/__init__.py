"""What becomes of answers: files that survive an interruption, summaries and pictures."""
