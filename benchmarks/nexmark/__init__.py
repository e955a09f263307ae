"""Nexmark: an auction house's persons, auctions and bids, and the questions that are asked of them."""
