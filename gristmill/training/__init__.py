"""Training in the open: a loop that reads as the algorithm, and its parts. Needs torch and numpy alone."""
