"""Rules found from examples, judged by what they derive and by whether they survive new names."""
