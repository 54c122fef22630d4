"""What went wrong in a run that happened, judged from what was observed of it."""
