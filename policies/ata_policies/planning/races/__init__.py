"""How races are planned: what a race costs on average, and the search for the best one."""
