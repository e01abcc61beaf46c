"""The page of a study: one HTML file that needs no network."""
