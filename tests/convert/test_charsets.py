"""Bytes to text: labels, marks, guesses, and what is said of each."""

import pytest

from memagent_batch.data.ingest.readers.charsets import decode_text, find_codec
from memagent_batch.errors import ConversionError

SENTENCES = {
    "German": ("Kündigungsfrist für Müller", "cp1252 mac_roman cp850 iso8859_1"),
    "German, a whole sentence": ("Die Gebühr beträgt 500 € – fällig in der Straße „Am Öltor“.", "cp1252 mac_roman"),
    "German, capitals": ("GEBÜHR FÜR ÄNDERUNGEN", "cp1252 mac_roman"),
    "French": ("Le délai de résiliation est fixé à trois mois, pénalités exclues.", "cp1252 mac_roman cp850"),
    "French, œ": ("La main-d'œuvre coûte 500 € par tête.", "cp1252"),
    "Spanish": ("El plazo de rescisión será de tres años según la cláusula séptima.", "cp1252 mac_roman cp850"),
    "Portuguese": ("A rescisão não dá direito à indenização prevista nas condições.", "cp1252 mac_roman cp850"),
    "Italian": ("La penalità è dovuta perché il canone non è stato pagato, così sarà.", "cp1252 mac_roman"),
    "Swedish": ("Uppsägningstiden är tre månader och avgiften är förfallen.", "cp1252 mac_roman cp850"),
    "Danish": ("Opsigelsesfristen er på tre måneder og gebyret skal betales først i året", "cp1252 mac_roman cp850"),
    "English": ("The “Licensee” won’t pay more than £500 – that’s the tenant’s limit.", "cp1252 mac_roman"),
    "Icelandic": ("Uppsagnarfrestur er þrír mánuðir og greiðsla á að berast", "cp1252"),
    "Polish": ("Umowa może być wypowiedziana, kara 500 zł, źródło", "cp1250 iso8859_2 cp852"),
    "Czech": ("Výpovědní lhůta činí tři měsíce, řekl žalobce", "cp1250 iso8859_2 cp852"),
    "Hungarian": ("A felmondási idő három hónap, a díj ötszáz euró, késedelmes fizetőknek több", "cp1250 iso8859_2"),
    "Romanian": ("Termenul de reziliere este de trei luni şi plata se face în ţară, până mâine", "cp1250 iso8859_2"),
    "Russian": ("Срок уведомления 30 дней. Штраф 5000 руб.", "cp1251 koi8_r cp866 iso8859_5 mac_cyrillic"),
    "Ukrainian": ("Строк дії договору становить три роки, його підписує директор", "cp1251 koi8_u"),
    "Bulgarian": ("Срокът на предизвестието е тридесет дни след получаване", "cp1251"),
    "Greek": ("Η σύμβαση λήγει μετά από τρία έτη και η αμοιβή καταβάλλεται", "cp1253 iso8859_7 cp737"),
    "Turkish": ("Sözleşmenin süresi üç yıldır ve ücret aylık ödenir, değişiklik yazılı yapılır", "cp1254"),
    "Hebrew": ("תקופת ההודעה היא שלושים יום מיום קבלת המכתב", "cp1255 cp862"),
    "Arabic": ("مدة العقد ثلاث سنوات تبدأ من تاريخ التوقيع", "cp1256 iso8859_6"),
    "Lithuanian": ("Sutarties terminas yra trys metai, o mokestis mokamas kas mėnesį iš sąskaitų", "cp1257"),
    "Thai": ("สัญญามีอายุสามปีและชำระค่าเช่าทุกเดือน", "cp874"),
    "Japanese": ("解約の通知は三十日前までに行うものとする。", "cp932 euc_jp iso2022_jp"),
    "Japanese, katakana": ("サービスの料金はユーザーが支払う", "cp932 euc_jp"),
    "Simplified Chinese": ("合同期限为三年，违约金为人民币五万元。", "gb18030 gbk"),
    "Traditional Chinese": ("合約期限為三年，違約金為新臺幣五萬元。", "big5"),
    "Korean": ("계약 기간은 삼 년이며 해지 통지는 서면으로 한다.", "euc_kr cp949"),
}
"""A sentence of each language, and encodings in which programs wrote it."""
PAIRS = [(name, codec) for name, (_, codecs) in SENTENCES.items() for codec in codecs.split()]


@pytest.mark.parametrize(("name", "codec"), PAIRS)
def test_text_without_a_label_is_read_with_a_doubt(name: str, codec: str) -> None:
    sentence, _ = SENTENCES[name]
    decoded = decode_text(sentence.encode(codec))
    assert decoded.text == sentence
    assert "characters may be wrong" in (decoded.doubt or "")


def test_guess_takes_letters_at_the_end_of_a_long_text_and_survives_a_bad_byte() -> None:
    text = "plain words of a long text\n" * 100_000 + "Der Preis beträgt fünf Euro für größere Mengen\n"
    assert decode_text(text.encode("cp1252")).text == text
    for sentence, codec in (
        ("계약 기간은 삼 년이며 ", "euc_kr"),
        ("解約の通知は三十日前までに行うものとする。", "cp932"),
    ):
        assert decode_text((sentence * 9999).encode(codec)).text == sentence * 9999
    decoded = decode_text("Kündigungsfrist für \x81 Müller".encode("cp1252", "ignore") + b" \x81")
    assert decoded.text.startswith("Kündigungsfrist für  Müller")


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("gb2312", "gbk", "朱镕基"),
        ("Shift_JIS", "cp932", "① 髙島"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("iso-8859-1", "cp1252", "“5 €”"),
        ("us-ascii", "utf-8", "Müller"),
        ("iso-8859-8-i", "iso8859_8", "חוזה"),
        ("iso-8859-11", "cp874", "สัญญา"),
        ("x-mac-cyrillic", "mac_cyrillic", "Договор"),
        ("big5", "big5hkscs", "香港嘅"),
        ("'utf-8'", "utf-8", "Müller"),
        ("utf-7", "utf-7", "Müller"),
        ("nonsense", "utf-8", "Müller"),
        ("utf-16le", "utf-16-le", "Müller"),
    ],
)
def test_label_is_read_as_browsers_read_it(label: str, codec: str, text: str) -> None:
    decoded = decode_text(text.encode(codec), label=label)
    assert (decoded.text, decoded.doubt) == (text, None)


@pytest.mark.parametrize("label", ["utf-8", "nonsense", "us-ascii", None])
def test_one_bad_byte_changes_no_other_character(label: str | None) -> None:
    decoded = decode_text("Kündigungsfrist für Müller: 50".encode() + b"\xa0EUR", label=label)
    assert decoded.text == "Kündigungsfrist für Müller: 50\ufffdEUR"
    assert "1 character is wrong" in (decoded.doubt or "")


def test_wrong_label_is_a_doubt() -> None:
    decoded = decode_text("Müller".encode(), label="windows-1252")
    assert decoded.text == "Müller"
    assert "labelled windows-1252" in (decoded.doubt or "")
    decoded = decode_text("Müller".encode("cp1252"), label="utf-8")
    assert decoded.text == "Müller"
    assert "fits best" in (decoded.doubt or "")


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["Gebühr 500", "Срок: 30 дней\n", "期限 三年\n合同\n", "a"])
def test_wide_characters_without_a_mark_are_read_with_a_doubt(codec: str, text: str) -> None:
    decoded = decode_text(text.encode(codec))
    assert decoded.text == text
    assert "NUL" in (decoded.doubt or "")


def test_control_characters_are_shown_as_what_stood_there() -> None:
    decoded = decode_text(b"The tenant\xc2\x92s fee \xc2\x96 5 \xc2\x80")
    assert decoded.text == "The tenant’s fee – 5 €"
    assert decoded.doubt is not None
    decoded = decode_text(b"name\0\0\0code")
    assert (decoded.text, "NUL" in (decoded.doubt or "")) == ("name code", True)


@pytest.mark.parametrize("data", [bytes(range(256)), b"\x1f\x8b\x08\0\x01\x02\x03\xff\x01\x02", b"\xff\xfe\0\xd8" * 9])
def test_bytes_that_are_no_text_are_refused_with_a_remedy(data: bytes) -> None:
    with pytest.raises(ConversionError, match="UTF-8"):
        decode_text(data)


def test_unknown_label_has_no_codec() -> None:
    assert [find_codec(label) for label in ("x-none", "base64", "")] == [None] * 3
