"""What a reader of a page in HTML sees: the text, and what of the page is not read."""

from base64 import b64encode
from pathlib import Path

import pytest

from memagent_batch.data.ingest.counts.pages import page_contents
from memagent_batch.data.ingest.counts.words import Given, words_of
from memagent_batch.data.ingest.readers.converter import Part
from memagent_batch.data.ingest.readers.html import HtmlConverter, decode_page
from memagent_batch.data.ingest.readers.page_reader import visible_text
from tests.convert import planted
from tests.convert.rows import RowsOf

BOXES = "<label><input type=checkbox checked>Yes</label><label><input type=checkbox>No</label>"
RADIOS = (
    "<input type=radio name=a>Rent<input type=radio name=a checked>Sale <div role=switch aria-checked=true>On</div>"
)
OPTIONS = "<option>monthly<option selected>yearly<option>never"
SPANS = (
    "<table><tr><th>Item<th colspan=2>2025<th>2026<tr><td><td>plan<td>real<td>plan"
    "<tr><td rowspan=2>Rent<td>1<td>2<td>3<tr><td>4<td>5<td>6<tr><td>Sum<td>5<td>7<td>9</table>"
)
STRUCK_RULE = "<style>.x, i.y {text-decoration:line-through}</style>"
LISTS = "<ol><li>Term<li><p>Fee</p><ol type=a start=2><li>rent<li>deposit</ol><li value=9>Law</ol><ul><li>none</ul>"
FRACTION = "<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>12</mn></mfrac><mo>=</mo>"
FORMULA = f"{FRACTION}<msup><mi>x</mi><mn>2</mn></msup><msqrt><mi>y</mi></msqrt></math>"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (BOXES, "☑ Yes ☐ No"),
        (RADIOS, "☐ Rent ☑ Sale\n☑ On"),
        (f"Paid <select>{OPTIONS}</select>.", "Paid yearly ."),
        (f"<select multiple>{OPTIONS}</select>", "☐ monthly ☑ yearly ☐ never"),
        ("<select><option>first<option>second</select>", "first"),
        ("<textarea>a\nb</textarea><input value=c placeholder=d><input type=password value=e>", "a\nb\nc"),
        ("<input placeholder='Your name'>", "[placeholder: Your name]"),
        ("Fee <del>5</del><ins>6</ins>, <s>7 <b>8</b></s>", "Fee [struck out: 5] 6, [struck out: 7 8]"),
        ("<del><p>One</p><p>Two</p></del>Three", "[struck out: One]\n[struck out: Two]\nThree"),
        ("<span style='text-decoration: line-through'>old</span> new", "[struck out: old] new"),
        (
            f"{STRUCK_RULE}<b class='a x'>1</b> <i class=y>2</i> <b class=y>3</b>",
            "[struck out: 1] [struck out: 2] 3",
        ),
        ("30<sup>2</sup> days, 10<sup>6</sup>7 H<sub>2</sub>O, 1<sup>st</sup>", "30^2 days, 10^6 7 H_2O, 1st"),
        ("10<span style='vertical-align:super'>6</span>, 12<sup>1</sup>/<sub>2</sub> %", "10^6, 12 1/2 %"),
        (
            "500<sup><a href='#n1'>1</a></sup> 600<a href='#n2'><sup>2</sup></a> 700<sup>[3]</sup>",
            "500[1] 600[2] 700[3]",
        ),
        (SPANS, "Item | 2025 |  | 2026\n | plan | real | plan\nRent | 1 | 2 | 3\n | 4 | 5 | 6\nSum | 5 | 7 | 9"),
        (LISTS, "1. Term\n2. Fee\nb. rent\nc. deposit\n9. Law\nnone"),
        ("<ol reversed><li>a<li>b</ol><ol style='list-style:none'><li>c</ol><ol><li>1. d</ol>", "2. a\n1. b\nc\n1. d"),
        (FORMULA, "(a + b)/12 = x^2 √(y)"),
        ("<p><![CDATA[a < b & c]]></p><script>//<![CDATA[\nx\n//]]></script>", "a < b & c"),
        ("Part&shy;ner a&nbsp;b Donau&#8203;dampf lo<wbr>ng", "Partner a b Donaudampf long"),
        ("漢<ruby>字<rt>ji</rt></ruby> <ruby>字<rp>(</rp><rt>ji</rt><rp>)</rp></ruby>", "漢字(ji) 字(ji)"),
        ("<![if !supportLists]>7.2 <![endif]>Late<!--[if mso]>unseen<![endif]-->", "7.2 Late"),
        (
            "<table><caption>Fees</caption><tr><td>a</table><details><summary>More</summary>b</details>",
            "Fees\na\nMore\nb",
        ),
        (
            "<span style='display:block'>a</span><span style='display:block'>b</span><button>c</button><button>d",
            "a\nb\nc d",
        ),
        ("<p hidden>a</p><p aria-hidden=true>b</p><template>c</template><noscript>d</noscript>", "a\nb\ncd"),
        (
            "<abbr title='Value Added Tax'>VAT</abbr> <a title=x>x</a> <b aria-label=Close>×</b>",
            "VAT [Value Added Tax] x × [Close]",
        ),
        ("<svg><title>Sales</title><text>Total</text><text>870</text></svg>", "Sales Total 870"),
        ("<span style='font-family:Wingdings'>&#254;</span> <font face=Symbol>&#163;</font> 5", "☑ ≤ 5"),
        ("a&#12;b\0c <q>d</q> <progress value=3 max=9></progress>", 'a bc "d" 3/9'),
        ("a</body></html>b<p>c</p></html><!-- d -->e", "a\nb\nc\n\ne"),
        ("<table summary='All fees'><tr><td>1<td abbr=x>2</table>", "1 | 2 [x]\n[All fees]"),
    ],
)
def test_page_is_read_as_it_is_shown_and_all_of_its_words_are_accounted_for(
    rows_of: RowsOf, page: str, text: str
) -> None:
    data = f"<html><title>T a</title><body>{page}</body></html>"
    assert visible_text(data).text == text
    assert [row for row in rows_of("p.html", data.encode()) if row["status"] == "missed"] == []


SET_APART = "<style>.r{display:flex} .b, td.x span{display:block} @media print{.p{display:block}}</style>"
ROWS = f"{SET_APART}<div class=r><b>2</b><i>500 EUR</i></div><p><b class=b>Street 12</b><b class=b>34 Town</b></p>"
GRID = "<style>@media screen{.g{display:grid}} .t span{display:table-cell} .n{display:inline-block;width:3em}</style>"
CELLS = "<div class=g><b>Qty 4</b><b>12.00</b></div><div class=t><span>1</span><span>9</span></div>"
ONE_WORD = (
    "<style>.i{display:inline} .c{color:red} b:hover{display:block} @media (max-width:9em){.c{display:block}}</style>"
)
COUNTED = (
    "<style>ol{list-style-type:none} ol.a.start{counter-reset:a 0} ol.b.start{counter-reset:b 0}"
    ".a>li{counter-increment:a}"
    ".b>li{counter-increment:b} .a>li:before{content:'' counter(a,decimal) '. '}"
    ".b>li:before{content:counter(a) '.' counter(b,lower-latin) ') '}</style>"
    "<ol class='a start'><li>Term<li><p>Fees</p></ol><ol class='b start'><li>rent<li>deposit</ol>"
    "<ol class=a><li>Law</ol><ol class='b start'><li>state</ol>"
)
NESTED = (
    "<style>ol{counter-reset:n;list-style:none} li{counter-increment:n} li::before{content:counters(n,'.') ' '}</style>"
    "<ol><li>Term<ol><li>year<li>month</ol><li>Fees</ol>"
)
FORMATS = (
    "<style>.l{list-style-type:lower-alpha} .u{list-style:upper-roman inside} .d{list-style:decimal}"
    ".k li{display:flex}</style>"
    "<ol class=l><li>a<li>b</ol><ol class=u><li>c</ol><ul class=d><li>d</ul><ol class=k><li>e</ol>"
)
WRITTEN = (
    "<style>.no::before{content:'not '} .r:after{content:' (\\72 equired)'} .e::before{content:'EUR'}"
    ".f:after{content:'\\f105'}</style>"
)


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (ROWS, "2\n500 EUR\nStreet 12\n34 Town"),
        (f"{SET_APART}<table><tr><td class=x><span>Flight 12</span><span>07:45<td>B</table>", "Flight 12 07:45 | B"),
        (f"{SET_APART}<i class=p>foo</i>bar", "foobar"),
        (f"{GRID}{CELLS}<b class=n>2</b><b>500</b>", "Qty 4\n12.00\n1 9\n2 500"),
        ("<p style='display: flex'><b>2</b><b>500</b></p>", "2\n500"),
        ("<style>.f{float:left}</style><b class=f>T</b>he <b class=f>2</b>500", "The 2 500"),
        (
            f"{ONE_WORD}<b>foo</b>bar <span class=i>foo</span>bar <i class=c>Ter</i><i class=c>m</i>",
            "foobar foobar Term",
        ),
        ("<style>#a b:nth-child(2){display:block}</style><p id=a><i>2</i><b>500</b>", "2 500"),
        ("<style>.a{display:block!important} i.a{display:inline}</style><i class=a>2</i>500", "2\n500"),
        ("<style>.a{&>b, & i{display:block}}</style><p class=a>1<b>2</b>3<u>4<i>5</i></u>", "1\n2\n34\n5"),
        (COUNTED, "1. Term\n2. Fees\n2.a) rent\n2.b) deposit\n3. Law\n3.a) state"),
        (NESTED, "1 Term\n1.1 year\n1.2 month\n2 Fees"),
        (
            FORMATS,
            "a. a\nb. b\nI. c\n1. d\ne",
        ),
        ("<style>li{list-style:none}</style><ol><li><p><b style='float:left'>I.1</b>alpha</p></ol>", "I.1 alpha"),
        (
            f"{WRITTEN}May <i class=no></i>sublet for <b class=e>500</b> <label class='r f'>Name</label>",
            "May not sublet for EUR 500 Name",
        ),
        (f"{WRITTEN}<label class=r>Name</label>", "Name (required)"),
        (
            "<style>.u, sup{vertical-align:super} .w{font:bold 9pt Wingdings,serif} .w i{font:inherit}</style>"
            "10<b class=u><sup>6</sup></b> 10<sup><b class=u>7</b></sup> <b class=w><i>&#254;</i></b>",
            "10^6 10^7 ☑",
        ),
        ("<style>m::before{content:attr(n)}</style>on<m n=2>30</m> days", "on 2 30 days"),
        (
            "<style>h2:before{counter-increment:h;content:'Part ' counter(h,upper-roman) ': '}</style><h2>A</h2>",
            "Part I: A",
        ),
        ("<style>a:after{content:none} b::after{content:'x';display:none}</style><a>1</a><b>2</b>", "12"),
        (
            "<style>.u{vertical-align:super} .s{position:relative;top:-.33em;font-size:.6em} .o.k{text-decoration:none}"
            ".o{text-decoration:line-through} .w{font-family:Wingdings}</style>10<b class=u>6</b> 10<b class=s>7</b> "
            "<i class=o>500</i> <i class='o k'>600</i> <i class=w>&#254;</i>",
            "10^6 10^7 [struck out: 500] 600 ☑",
        ),
    ],
)
def test_page_with_style_sheets_is_read_as_it_is_shown(rows_of: RowsOf, page: str, text: str) -> None:
    data = f"<html><title>T</title><body>{page}</body></html>"
    assert visible_text(data).text == text
    assert [row for row in rows_of("p.html", data.encode()) if row["status"] in ("missed", "needs_review")] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<style>p:nth-child(2)::before{content:'not '}</style><p>a<p>b", "p:nth-child(2)::before"),
        ("<style>:root{--t:'not '} .v::before{content:var(--t)}</style><p class=v>b", ".v::before"),
        ("<style>i + b{text-decoration:line-through}</style><i>a</i> <b>b</b>", "i + b"),
        (
            "<link rel=stylesheet href=a/main.css><b>std</b><i>1.0.0</i>",
            "(a/main.css) may set words apart in std1.0.0;",
        ),
    ],
)
def test_words_that_a_style_sheet_may_change_and_that_are_not_read_are_a_doubt(
    tmp_path: Path, page: str, words: str
) -> None:
    file = tmp_path / "a.html"
    file.write_text(f"<html>{page}")
    part = next(iter(HtmlConverter().convert(file)))
    assert isinstance(part, Part)
    assert part.status == "needs_review"
    assert words in (part.reason or "")


@pytest.mark.parametrize("page", ["<b>Ter</b><i>m</i>", "<b>a</b> <i>1</i>", "<p>a</p><p>1</p>"])
def test_style_sheets_that_are_not_there_are_no_doubt_where_no_number_or_capital_follows(page: str) -> None:
    assert visible_text(f"<html><link rel=stylesheet href=a.css>{page}").doubt is None


def test_count_of_words_parts_those_that_rules_set_apart() -> None:
    page = f"{ROWS}{GRID}{CELLS}<b class=n>7</b>8 <b>foo</b>bar"
    words = [word for content in page_contents(f"<body>{page}") for word in words_of(content.text)]
    assert " ".join(words) == "2 500 eur street 12 34 town qty 4 12 00 1 9 7 8 foobar"


READABLE = (
    "<TITLE>b1</title ><p>b2&shy;b3 <b>b4</b>&#32;b5<br/>b6 &lt;b7&gt; b8<9</p><a title='b9'>b10</a><img alt=b11 src=x>"
    "<input value=\"b12 > b13\" placeholder='b14'><input type=password placeholder=b15><textarea>b16</textarea>"
    "<select><optgroup label=b17><option label=b18>b19</select><datalist><option value=b20></datalist>"
    "<iframe srcdoc=\"<p title='b21'>b22 &amp;lt; b23\"></iframe><svg><text>b24<text>b25</svg><p hidden>b26</p>"
    "<noscript>b27</noscript> <template>b28</template> <x-y>b29</x-y><![CDATA[ <b30> ]]><![if x]>b31 <![endif]><!-->b32"
    "<div aria-label=b33 data-title=no></div><table summary=b34><td abbr=b35></table></body></html>b36<p>b37"
)
UNREADABLE = (
    "<!-- no --><script>'<p>no'</script><style>p {content: 'no'}</style><input type=hidden value=no><p class='no > no'>"
    "<link title=no><meta name=description content=no><a href=no id=no>"
)


def test_words_of_a_page_are_counted_wherever_a_browser_shows_them() -> None:
    contents = page_contents(f"{READABLE}{UNREADABLE}<b")
    words = [word for content in contents for word in words_of(content.text)]
    assert sorted(words) == sorted(["b2b3", "9", *(f"b{number}" for number in range(1, 38) if number not in (2, 3))])


def test_word_of_a_page_that_its_reader_does_not_give_is_a_loss() -> None:
    for number in range(1, 38):
        given = Given()
        given.add_text(" ".join(["9", *(f"b{other}" for other in range(1, 38) if other != number)]))
        missing = [word for each in given.missing(page_contents(READABLE)) for word in each.words]
        assert missing == ["b2b3" if number in (2, 3) else f"b{number}"]


PICTURE = f"data:image/png;base64,{b64encode(planted.picture('x')).decode()}"
DRAWING = "data:image/svg+xml;base64," + b64encode(b"<svg><text>drawn</text></svg>").decode()


@pytest.mark.parametrize(
    ("page", "status", "reason"),
    [
        ("<img src=scan.png width=800>", "skipped", "pictures that it shows and does not hold (scan.png)"),
        ("<img src=dot.gif width=1 height=1>", None, ""),
        ("<picture><source srcset='b.webp 1x, c.webp 2x'></picture><img srcset='d.png 2x'>", "skipped", "picture"),
        (f"<picture><source srcset='{PICTURE} 1x'><img src=b.png></picture>", "needs_ocr", "a picture"),
        (f"<div style='background: #fff url({PICTURE})'></div>", "needs_ocr", "a picture"),
        ("<style>p {background-image: url('bg.png')}</style>", "skipped", "bg.png"),
        ("<style>@font-face {src: url(font.woff)}</style>", None, ""),
        ("<table background=bg.png></table>", "skipped", "bg.png"),
        ("<svg><image href='a.png'/></svg>", "skipped", "a.png"),
        ("<object data=a.png></object><embed src=b.jpg>", "skipped", "a.png, b.jpg"),
        ("<video src=a.mp4>Shown without it</video>", "skipped", "a video"),
        ("<audio src=a.mp3></audio>", "skipped", "a sound recording"),
        ("<embed src=a.swf>", "skipped", "a video"),
        ("<object data=a.html></object>", "skipped", "other pages"),
        ("<frameset><frame src=a.html></frameset>", "skipped", "other pages"),
        ("<canvas></canvas>", "skipped", "a drawing by scripts"),
    ],
)
def test_page_names_the_pictures_and_media_that_are_not_read(
    tmp_path: Path, page: str, status: str | None, reason: str
) -> None:
    file = tmp_path / "a.html"
    file.write_text(f"<html>{page}")
    unread = [part for part in HtmlConverter().convert(file) if isinstance(part, Part)][1:]
    assert [part.status for part in unread] == ([] if status is None else [status])
    assert all(reason in (part.reason or "") for part in unread)


def test_words_that_stand_for_a_picture_or_are_drawn_in_one_are_read() -> None:
    assert visible_text("<img src=a.png alt='Clause 9: no cap'>").text == "[picture: Clause 9: no cap]"
    assert visible_text(f"<img src='{DRAWING}'>").text == "drawn"


def test_page_is_decoded_by_its_header_before_its_own_label() -> None:
    page = "<meta charset=windows-1251><p>Платим".encode("cp1251")
    assert "Платим" in decode_page(page).text
    assert "Платим" in decode_page(page, label="us-ascii").text
    assert "Платим" in decode_page(page.replace(b"1251", b"1252"), label="windows-1251").text
    assert "Платим" in decode_page("<meta charset=utf-16>Платим".encode()).text
