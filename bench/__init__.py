"""Speed, always as ratios to other ways of making the same calls in the same run (`make bench QUICK=1`)."""
