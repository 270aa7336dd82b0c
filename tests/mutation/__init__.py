"""Mutation testing: changes the code in small ways, and shows which changes no test notices."""
