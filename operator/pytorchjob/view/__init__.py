"""Objects become values for people: pure functions of plain dicts and a time. No client, no clock."""
