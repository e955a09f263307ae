"""Nexmark: queries over the persons, auctions and bids of an auction site."""
