"""A guess at the encoding of a text that names none, by the letters that each language uses most.

A text is decoded in every candidate encoding. The best one shows frequent letters of one language, in words of one
script and with capitals at their beginning.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

CHUNK_BYTES, NUM_CHUNKS, WORD_BYTES = 4 << 10, 256, 400
"""Pieces of a text in which words with bytes above 127 are looked for, how many of them, and the longest such word."""
SAMPLE_BYTES = 8 << 10
"""Bytes of such words by which an encoding is guessed, about."""
NOT_ASCII = re.compile("[^\0-\x7f]")
WORD = re.compile(rb"[^\s\x80-\xff]{0,40}[\x80-\xff]\S*+")
WESTERN = ("cp1252", "mac_roman", "cp850", "cp437", "iso8859_15")
CENTRAL = ("cp1250", "iso8859_2", "cp852", "mac_latin2")
CYRILLIC = ("cp1251", "koi8_r", "koi8_u", "cp866", "mac_cyrillic", "iso8859_5")
BALTIC = ("cp1257", "iso8859_13", "cp775")
TURKISH = ("cp1254", "cp857", "mac_turkish")
LANGUAGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        WESTERN,
        (
            "’“”–‘—£é",
            "üäöß",
            "éèàêçîôùûâëœïü",
            "óáíñéúü",
            "ãçáéíóõêúâàôü",
            "èàùéòìî",
            "äöåéüà",
            "øåæéòôöäü",
            "ëéïöèüç",
            "ðáíæóöþúýé",
            "óàéèíòçúïü",
            "áíéúó",
            "äõüöšž",
            "ëçê",
        ),
    ),
    (CENTRAL, ("ąłęóżśćńź", "íáěéčřžšýůúóťďň", "áíéčýžúšťôľňóäďĺŕ", "áéíóöőüúű", "ăîşţâ", "čšžćđ", "üäöß")),
    (("cp1250", "iso8859_16"), ("ăîșțâ",)),
    (
        CYRILLIC,
        (
            "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
            "оанивтеірксулдпмьязбгйчхжцєшїюфщґ",
            "аоеинтрсвлдкпмзяъугбчжцйшщхфюь",
            "аоеинртсвкуплдмјзбгчшњцљжћхђфџ",
            "аніоерялткдсвупмзыьгчбўцшйхёжюэф",
            "оаеинтрвсдклпмзушбгјчжцњхфќѓѕљџ",
        ),
    ),
    (("cp1253", "iso8859_7", "cp737", "mac_greek"), ("αοιετνσρκηπμςλυίόάδγέήωύχθφώβξζψϊϋ",)),
    (TURKISH, ("ışüçğöİâ",)),
    (("cp1255", "cp862"), ("יולהמארתבנשעםדקחפגכצטןזסךףץ",)),
    (("cp1256", "iso8859_6", "cp864"), ("اليمنوترهبدعسفكحقةجصخطشأذضغزثىئإؤءظآ", "ایرندهتومبشسکلخفزعگپقطحجچغذصضآثظژ")),
    (BALTIC, ("ėšųžįąūčę", "āīēšņļūžķčģ", "äõüöšž")),
    (("cp1258",), ("đ\u0301\u0300ư\u0323\u0309ơâêôáàăéạệóế\u0303úùòíìýãèõ",)),
    (("cp874",), ("านรอกเงมยลวดท่ส้ตะป็ัีิุู์บคหแึจชขไพใำโผซณถืธศภฟญษฉฐฮ",)),
    (
        ("cp932", "euc_jp"),
        (
            "のいるにたしてはとをがなでんれさかりうこまらものーンスルトイリラクレアシドフタロプジマセメッす一人日本年大"
            "国会中事業者約定契月場合社書金第条当等間期内通知",
        ),
    ),
    (
        ("gb18030",),
        (
            "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面方后多"
            "定行学法所民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本合还因由其些然前无用"
            "户文件名称日期金额条款付款方式支付公司责任违约同期限通知书面应按照甲乙双协议规第。，、：；",
        ),
    ),
    (
        ("big5hkscs",),
        (
            "的一是在不了有和人這中大為上個國我以要他時來用們生到作地於出就分對成會可主發年動同工也能下過子說產種面方後多"
            "定行學法所民得經十三之進著等部度家電力里如水化高自二理起小物現實加量都兩體制機當使點從業本合還因由其些然前無"
            "約期限通知書條款付公司責任違金額應按照甲乙雙協議規第，。、：；",
        ),
    ),
    (
        ("cp949",),
        (
            "이다는에의을가하고지로를한은기사도시리자인어나해대정서부라아전일수그보있과만제계약구"
            "니성것여상장오들습합게무으스조소주용모면우되동개였원유관금때문등월년각당",
        ),
    ),
)
"""Encodings, and for each language that is written in them its letters outside ASCII, most frequent ones first. English
has signs alone."""
SIGNS = frozenset("\u201c\u201d\u2018\u2019\u201e\u2013\u2014\u2026\u20ac£§°«»\xa0•®©™·½ºª¿¡²³№")
"""Signs that texts of all languages have."""
UNLISTED, RARE, SIGN, ODD_SIGN, CONTROL = -4.5, -8.0, -3.0, -6.0, -12.0
"""Points for a character outside ASCII that is not a listed letter of a language."""
FAMILY_STEP, ENCODING_STEP = 0.1, 0.5
"""Points by which each language family, and each of its encodings, is less likely than the one before."""
SCRIPTS = {
    "LATIN": "lL",
    "CYRILLIC": "cC",
    "GREEK": "gG",
    "HEBREW": "bb",
    "ARABIC": "aa",
    "THAI": "tt",
} | dict.fromkeys(("HIRAGANA", "KATAKANA", "CJK", "HANGUL"), "hh")
"""Letters that stand for the small and capital letters of a script in the shape of a text."""
SHAPE_POINTS = (
    (re.compile("[lcg](?=[LCG])"), -5.0),  # a capital inside a word
    (re.compile("[lL](?=[cCgGbat])|[cCgGbat](?=[lL])|[cC](?=[gGbat])|[gG](?=[cCbat])"), -5.0),  # two scripts in a word
    (re.compile("[lL](?=h)|h(?=[lL])"), -1.5),
    (re.compile("(?<=[lLcCgG])s(?=[lLcCgG])"), -5.0),  # a sign inside a word
)
NATIONAL_SETS = {"cp932": ("euc_jp", 0xCF), "gb18030": ("gb2312", 0xD7), "big5hkscs": ("big5", 0xC6)} | {
    "euc_jp": ("euc_jp", 0xCF),
    "cp949": ("euc_kr", 0xC8),
}
"""For an encoding of two bytes a letter, the one that has its common letters first, and their last first byte."""


def guess_encoding(data: bytes) -> str:
    """Returns Python's codec for the most likely encoding of a text with bytes above 127."""
    sample = _sample(data)
    scores = dict[str, float]()
    for family, (codecs, languages) in enumerate(LANGUAGES):
        for rank, codec in enumerate(codecs):
            text = sample.decode(codec, "replace")
            counts = Counter(NOT_ASCII.findall(text))
            points = max(_letter_points(counts, letters, codec) for letters in languages) + _shape_points(text)
            points -= FAMILY_STEP * family + ENCODING_STEP * rank
            mean = points / max(1, counts.total())
            scores[codec] = max(mean, scores.get(codec, mean))
    return max(scores, key=lambda codec: scores[codec])


def _sample(data: bytes) -> bytes:
    """Returns words with bytes above 127 from places all over the text."""
    chunks = [chunk for at in range(0, len(data), CHUNK_BYTES) if not (chunk := data[at : at + CHUNK_BYTES]).isascii()]
    chunks = chunks[:: max(1, len(chunks) // NUM_CHUNKS)]
    starts = (chunk if data.startswith(chunk) else chunk.split(None, 1)[-1] for chunk in chunks)
    words = [word[0][:WORD_BYTES] for chunk in starts for word in WORD.finditer(chunk)]
    return b" ".join(words[:: max(1, sum(map(len, words)) // SAMPLE_BYTES)]) or b"".join(chunks[:1])


def _letter_points(counts: Mapping[str, int], letters: str, codec: str) -> float:
    ranks = {letter: rank for rank, letter in enumerate(letters)}
    return sum(number * _points(character, ranks, codec) for character, number in counts.items())


def _shape_points(text: str) -> float:
    shape = text.translate({ord(character): _shape(character) for character in set(text)})
    return sum(points * len(pattern.findall(shape)) for pattern, points in SHAPE_POINTS)


def _points(character: str, ranks: Mapping[str, int], codec: str) -> float:
    rank = ranks.get(character.lower(), ranks.get(character))
    if rank is not None:
        return -0.7 - min(0.9, len(ranks) / 27) - 4 * rank / len(ranks)  # long alphabets use each letter less
    if character in SIGNS:
        return SIGN
    category = unicodedata.category(character)
    if category[0] == "C" or character == "\ufffd":
        return CONTROL
    if category[0] not in "LM":
        return SIGN if "\u3000" <= character < "\u3020" or "\uff01" <= character < "\uff60" else ODD_SIGN
    return UNLISTED if _is_common(character, codec) else RARE


def _is_common(character: str, codec: str) -> bool:
    if codec not in NATIONAL_SETS:
        return False
    name, last = NATIONAL_SETS[codec]
    try:
        return character.encode(name)[0] <= last
    except UnicodeEncodeError:
        return False


def _shape(character: str) -> str:
    if not character.isalpha():
        return "s" if character > "\x7f" and character not in "\u2019\u2018·\xa0\xad" else " "
    script = unicodedata.name(character, "").split(" ")[0]
    return SCRIPTS.get(script, "xx")[character.isupper()]
