"""One module a verb: its request, its answer, and the function from one to the other."""
