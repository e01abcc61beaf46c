"""Work on a Ray cluster: rounds whose tasks actors compute."""
