"""One round for a batch of rows: keyed noise and compiled loops, arrays in and arrays out, without Gymnasium."""
