"""Studies of real processes on one machine, whose unequal speeds are emulated: they wait where others would compute."""
