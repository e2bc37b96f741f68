"""Compare systems by the preferences of a judge, and the judge with people who compared the same pairs."""
