"""The steps in which a belief is adjusted round by round: factors, ages, memories and slots."""
