"""Commands that list what there is, as a table. The room ``cli`` makes them commands."""
