"""What the rows of an env remember of their episodes, how they take their steps, and what runs the tasks in them."""
