import torch

from bench.shapes import num_generated


def test_tokens_up_to_the_first_end_count_and_it_too():
    responses = torch.tensor([[9, 9, 4, 9], [3, 3, 9, 9], [9, 9, 9, 9]])
    assert num_generated(responses, torch.tensor([3, 4])) == 3 + 1 + 4
