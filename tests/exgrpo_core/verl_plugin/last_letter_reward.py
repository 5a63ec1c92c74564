"""A reward as a user of stock verl writes it: 1 where the code of the response's last letter is even."""


def compute_score(solution_str, **_verl):
    return float(bool(solution_str) and ord(solution_str[-1]) % 2 == 0)
