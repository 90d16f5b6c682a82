"""What is drawn and typed: text, live lines, interrupts, and a reader that has gone."""
