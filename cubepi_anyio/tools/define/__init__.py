"""What a tool is: its name, its schema, the function behind it, and how arguments are checked. Runs nothing."""
