from app import theme


def test_a_table_has_the_height_of_its_head_its_rows_and_its_border():
    assert theme.table_height(3) == 34 + 3 * 34 + 2
    assert theme.table_height(3, 12) == theme.table_height(3)
    assert theme.table_height(13, 12) == theme.table_height(12)
