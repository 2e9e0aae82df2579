"""Figures, each beside a peer in one run; `make bench` prints them."""
