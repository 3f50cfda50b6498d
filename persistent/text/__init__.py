"""How things are said to a person: times and sizes, what a task is made of, whose line was wrong, what was meant."""
