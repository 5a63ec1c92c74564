"""Files of questions, as users bring them."""

import json


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verl_row(question, answer="4", source="mine", system="", **fields):
    """Return a row in verl's layout."""
    prompt = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": question}]
    return {"data_source": source, "prompt": prompt, "reward_model": {"ground_truth": answer}} | fields
