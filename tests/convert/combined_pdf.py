"""Features of PDFs that `combined.py` combines."""

from PIL import Image

from tests.convert import files, planted
from tests.convert.combined import Draft, Kind

FIRST_OBJECT = 12


def _pdf(draft: Draft, body: str) -> bytes:
    """One page; objects of features follow from `FIRST_OBJECT` on."""
    annotations = " ".join(draft.beside.get("annotations", ()))
    properties = " ".join(draft.beside.get("properties", ()))
    off = " ".join(each for each in draft.beside.get("off", ()))
    layers = " ".join(draft.beside.get("layers", ()))
    pictures = " ".join(draft.beside.get("pictures", ()))
    names = " ".join(draft.beside.get("files", ()))
    tags = " ".join(_object(draft, each.encode()) for each in draft.beside.get("tags", ()))
    fields = " ".join(draft.beside.get("fields", ()))
    catalogue = (
        f"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [{fields}] /DR << /Font << /F1 3 0 R >> >> >> "
        f"/Names << /EmbeddedFiles << /Names [{names}] >> >> "
        "/MarkInfo << /Marked true >> /StructTreeRoot 9 0 R "
        f"/OCProperties << /OCGs [{layers}] /D << /OFF [{off}] >> >> >>"
    )
    resources = f"/Font << /F1 3 0 R >> /XObject << /Im1 6 0 R {pictures} >> /Properties << {properties} >>"
    inherited = f"/Resources << {resources} >>" if "inherited" in draft.beside else ""
    own = draft.joined("rotate") + ("" if inherited else f"/Resources << {resources} >>")
    second = "7 0 R" if "pages" in draft.beside else ""
    objects = [
        catalogue.encode(),
        f"<< /Type /Pages /Kids [4 0 R {second}] /Count {1 + bool(second)} /MediaBox [0 0 600 800] "
        f"{inherited} >>".encode(),
        files.FONT.encode(),
        f"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Annots [{annotations}] /StructParents 0 {own} >>".encode(),
        files.stream("", f"{files.written('Terms of the deed')} {body}".encode("latin-1")),
        files.stream(
            "/Type /XObject /Subtype /Image /Width 4 /Height 4 /ColorSpace /DeviceGray /BitsPerComponent 8", bytes(16)
        ),
        b"<< /Type /Page /Parent 2 0 R /Contents 8 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
        files.stream("", draft.joined("pages").encode("latin-1")),
        f"<< /Type /StructTreeRoot /K [{tags}] /ParentTree << /Nums [0 [{tags}]] >> >>".encode(),
        *([b"<< >>"] * 2),
        *draft.beside.get("objects", ()),
    ]
    return files.assembled(objects)


PDF = Kind("pdf", _pdf)


def _object(draft: Draft, data: bytes) -> str:
    draft.add("objects", data)
    return f"{FIRST_OBJECT + len(draft.beside['objects']) - 1} 0 R"


def _at(draft: Draft, text: str, *, before: str = "", left: int = 40) -> str:
    """Shows a text on a line of its own."""
    return f"BT /F1 10 Tf {before} {left} {720 - 25 * draft.number()} Td ({text}) Tj ET\n"


def _annotation(draft: Draft, entries: str) -> str:
    top = 720 - 25 * draft.number()
    reference = _object(draft, f"<< /Type /Annot /Rect [320 {top - 15} 560 {top}] {entries} >>".encode())
    draft.add("annotations", reference)
    return reference


@PDF.feature
def line(draft: Draft, inner: str) -> str:
    return _at(draft, draft.word()) + inner


@PDF.feature
def kerned(draft: Draft, inner: str) -> str:
    word, top = draft.word(), 720 - 25 * draft.number()
    return f"BT /F1 10 Tf 40 {top} Td [({word[:3]}) -20 ({word[3:5]}) 15 ({word[5:]})] TJ ET\n{inner}"


@PDF.feature
def two_columns(draft: Draft, inner: str) -> str:
    left, right = [" ".join(draft.word() for _ in range(4)) for _ in range(2)]
    top = 720 - 25 * draft.number()
    return f"BT /F1 10 Tf 40 {top} Td ({left}) Tj ET BT /F1 10 Tf 320 {top} Td ({right}) Tj ET\n{inner}"


@PDF.feature
def hyphenated(draft: Draft, inner: str) -> str:
    word, top = draft.word(), 720 - 25 * draft.number()
    return f"BT /F1 10 Tf 12 TL 40 {top} Td (the {word[:4]}-) Tj T* ({word[4:]} of it) Tj ET\n{inner}"


@PDF.feature
def invisible(draft: Draft, inner: str) -> str:
    return _at(draft, draft.word(), before="3 Tr") + "0 Tr " + inner


@PDF.feature
def turned(draft: Draft, inner: str) -> str:
    return f"BT /F1 10 Tf 0 1 -1 0 590 {100 * draft.number()} Tm ({draft.word()}) Tj ET\n{inner}"


@PDF.feature
def turned_page(draft: Draft, inner: str) -> str:
    draft.add("rotate", "/Rotate 90")
    return _at(draft, draft.word()) + inner


@PDF.feature
def furniture(draft: Draft, inner: str) -> str:
    return f"/Artifact << /Type /Pagination >> BDC {_at(draft, draft.word())} EMC {inner}"


@PDF.feature
def second_page(draft: Draft, inner: str) -> str:
    draft.add("pages", _at(draft, draft.word()))
    return inner


@PDF.feature
def group(draft: Draft, inner: str) -> str:
    form = files.stream(
        "/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >>",
        _at(draft, draft.word()).encode(),
    )
    name = f"Fm{draft.number()}"
    draft.add("pictures", f"/{name} {_object(draft, form)}")
    return f"q /{name} Do Q {inner}"


@PDF.feature
def note(draft: Draft, inner: str) -> str:
    _annotation(draft, f"/Subtype /Text /T ({draft.word()}) /Contents ({draft.word()})")
    return inner


@PDF.feature
def typed(draft: Draft, inner: str) -> str:
    _annotation(draft, f"/Subtype /FreeText /DA (/F1 9 Tf) /Contents ({draft.word()})")
    return inner


@PDF.feature
def marked(draft: Draft, inner: str) -> str:
    _annotation(draft, f"/Subtype /Highlight /QuadPoints [40 500 60 500 40 490 60 490] /Contents ({draft.word()})")
    return inner


@PDF.feature
def form_field(draft: Draft, inner: str) -> str:
    draft.add(
        "fields", _annotation(draft, f"/Subtype /Widget /FT /Tx /F 4 /T (code{draft.number()}) /V ({draft.word()})")
    )
    return inner


@PDF.feature
def chosen(draft: Draft, inner: str) -> str:
    word = draft.word()
    draft.add(
        "fields",
        _annotation(
            draft, f"/Subtype /Widget /FT /Ch /Ff 131072 /F 4 /T (c{draft.number()}) /Opt [({word}) (x)] /V ({word})"
        ),
    )
    return inner


@PDF.feature
def stamp(draft: Draft, inner: str) -> str:
    look = _object(
        draft,
        planted.appearance(f"BT /F1 12 Tf 5 5 Td ({draft.word()}) Tj ET").replace(b"/XObject << /Im2 8 0 R >>", b""),
    )
    _annotation(draft, f"/Subtype /Stamp /F 4 /AP << /N {look} >>")
    return inner


@PDF.feature
def stamp_over_scan(draft: Draft, inner: str) -> str:
    """A stamp above a picture of a text, which needs OCR."""
    picture = _object(draft, planted.image_object(Image.new("L", (64, 64), 90)))
    draft.add("pictures", f"/Sc{draft.number()} {picture}")
    draft.unread("a picture")
    return f"q 400 0 0 300 40 40 cm /Sc{draft.numbers} Do Q {stamp(draft, inner)}"


@PDF.feature
def inherited_resources(draft: Draft, inner: str) -> str:
    draft.add("inherited", "of the tree of pages")
    return inner


@PDF.feature
def tagged(draft: Draft, inner: str) -> str:
    """A picture with a text for people who do not see it, and a word that is drawn in two pieces."""
    kinds, shown = ("Figure /Alt", "Span /ActualText", "Span /E"), draft.word()
    for number, (kind, text) in enumerate(zip(kinds, (draft.word(), shown, draft.word()), strict=True)):
        draft.add("tags", f"<< /Type /StructElem /S /{kind} ({text}) /P 9 0 R /Pg 4 0 R /K {number} >>")
    half = len(shown) // 2
    content = f"/Span << /MCID 1 >> BDC {_at(draft, f'{shown[:half]}) Tj ({shown[half:]}')} EMC"
    return f"/Figure << /MCID 0 >> BDC {_at(draft, '-')} EMC {content} /Span << /MCID 2 >> BDC EMC {inner}"


@PDF.feature
def layer_off(draft: Draft, inner: str) -> str:
    name, layer = f"P{draft.number()}", _object(draft, b"<< /Type /OCG /Name (Draft) >>")
    draft.add("properties", f"/{name} {layer}")
    draft.add("layers", layer)
    draft.add("off", layer)
    return f"/OC /{name} BDC {_at(draft, draft.word(said='layers that are off'))} EMC {inner}"


@PDF.feature
def file_inside(draft: Draft, inner: str) -> str:
    name, data = draft.file_inside()
    content = _object(draft, files.stream("/Type /EmbeddedFile", data))
    draft.add(
        "files",
        f"({name}) {_object(draft, f'<< /Type /Filespec /F ({name}) /UF ({name}) /EF << /F {content} >> >>'.encode())}",
    )
    return inner


@PDF.feature
def file_behind_clip(draft: Draft, inner: str) -> str:
    content = _object(draft, files.stream("/Type /EmbeddedFile", draft.word().encode()))
    _annotation(draft, f"/Subtype /FileAttachment /FS << /Type /Filespec /F (clip.txt) /EF << /F {content} >> >>")
    return inner
