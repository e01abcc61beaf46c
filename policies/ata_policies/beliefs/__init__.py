"""What policies remember: counts, moments, windows, discounts, change detection, whole distributions, availability."""
