"""What records of runs say: statistics, a headline, tables and pictures, in one style."""
