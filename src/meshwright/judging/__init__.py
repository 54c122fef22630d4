"""What explaining, checking and fixing share: facts of a case, the guides' rules, their judges, findings, and moves of one knob."""
