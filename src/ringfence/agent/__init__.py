"""What an author of agents builds on: tools that act in one box, boxes by session. The public names alone, and nothing below."""
