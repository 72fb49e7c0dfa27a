from memagent_batch.domain.words import words_of


def test_words_are_runs_of_letters_in_lower_case_and_pairs_of_signs_where_a_script_has_no_spaces() -> None:
    assert words_of("The Code of copper-falcon: 73 ÉTÉ") == ["the", "code", "of", "copper", "falcon", "73", "été"]
    assert words_of("東京都 2024年 猫") == ["東京", "京都", "2024", "年", "猫"]
    assert words_of("نعم، غادر") == ["نعم", "غادر"]
    assert words_of(" .") == []
