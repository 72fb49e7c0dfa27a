from memagent_batch.loop.texts.words import folded_words


def test_words_are_runs_of_letters_in_lower_case_and_pairs_of_signs_where_a_script_has_no_spaces() -> None:
    assert folded_words("The Code of copper-falcon: 73 ÉTÉ") == ["the", "code", "of", "copper", "falcon", "73", "été"]
    assert folded_words("東京都 2024年 猫") == ["東京", "京都", "2024", "年", "猫"]
    assert folded_words("نعم، غادر") == ["نعم", "غادر"]
    assert folded_words(" .") == []
