"""Packages of Office and LibreOffice, and ZIP files that say one thing twice."""

import io
import struct
import warnings
import zipfile
from collections.abc import Mapping

from tests.convert.files import docx_file, repacked, zipped

RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
NAMESPACES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml" '
    f'xmlns:r="{RELATIONS}"'
)


def docx(body: str, **parts: str | bytes) -> bytes:
    """A document with this body, and parts beside it: the content of each, by the kind of its relation."""
    package = docx_file(("Normal", "x"))
    members = {"word/document.xml": f"<w:document {NAMESPACES}><w:body>{body}</w:body></w:document>".encode()}
    for kind, content in parts.items():
        name = f"more/{kind}1.{'xml' if isinstance(content, str) else 'bin'}"
        if isinstance(content, str):
            content = f"<w:{kind} {NAMESPACES}>{content}</w:{kind}>".encode()
        members[f"word/{name}"] = content
        package = with_relation(package, "word/document.xml", f'Type="{RELATIONS}/{kind}" Target="{name}"')
    return repacked(package, members)


def with_relation(package: bytes, part: str, relation: str, members: Mapping[str, bytes] = {}) -> bytes:
    """A package with one more relation of a part, and with further members."""
    folder, _, name = part.rpartition("/")
    listed = f"{folder}/_rels/{name}.rels"
    with zipfile.ZipFile(io.BytesIO(package)) as old:
        xml = old.read(listed).decode() if listed in old.namelist() else relations()
    number = f"rId9{xml.count('<Relationship ')}"
    relation = relation if "Id=" in relation else f'Id="{number}" {relation}'
    xml = xml.replace("</Relationships>", f"<Relationship {relation}/></Relationships>")
    return repacked(package, {listed: xml.encode(), **members})


P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
PACKAGE_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def pptx(*slides: str, **beside: bytes) -> bytes:
    """A PPTX of slides, each the XML of its shapes; the first slide relates to more parts: content by kind."""
    entries = "".join(f'<p:sldId r:id="rId{number}"/>' for number in range(1, len(slides) + 1))
    endings = {kind: f"{kind}.{'xml' if data.startswith(b'<') else 'bin'}" for kind, data in beside.items()}
    names = [f"slides/slide{number}.xml" for number in range(1, len(slides) + 1)]
    members = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}"/>',
        "_rels/.rels": relations((f"{RELATIONS}/officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {P} {NAMESPACES}><p:sldIdLst>{entries}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(*((f"{RELATIONS}/slide", name) for name in names)),
        **{
            f"ppt/{name}": f"<p:sld {P} {NAMESPACES}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
            for name, shapes in zip(names, slides, strict=True)
        },
        "ppt/slides/_rels/slide1.xml.rels": relations(
            *((f"{RELATIONS}/{kind}", f"../{endings[kind]}") for kind in beside)
        ),
    }
    packed = {name: text.encode() for name, text in members.items()}
    return zipped(packed | {f"ppt/{endings[kind]}": data for kind, data in beside.items()})


def relations(*targets: tuple[str, str]) -> str:
    """Relations of a package: (type, target)."""
    each = (
        f'<Relationship Id="rId{number}" Type="{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{PACKAGE_RELATIONS}">{"".join(each)}</Relationships>'


def shape(text: str) -> str:
    """A text box of a slide."""
    return f"<p:sp><p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"


OPEN_NAMES = {"draw": "drawing", "fo": "xsl-fo-compatible", "svg": "svg-compatible"}
OPEN_NAMESPACES = " ".join(
    [
        *(
            f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{OPEN_NAMES.get(name, name)}:1.0"'
            for name in ("office", "text", "table", "draw", "style", "form", "fo", "svg")
        ),
        'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"',
        'xmlns:math="http://www.w3.org/1998/Math/MathML"',
        'xmlns:field="urn:openoffice:names:experimental:ooo-ms-interop:xmlns:field:1.0"',
        'xmlns:loext="urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0"',
    ]
)


def opendocument(
    body: str, *, header: str = "", members: dict[str, bytes] | None = None, manifest: str = "", styles: str = ""
) -> bytes:
    """A package of LibreOffice: the XML of its body, of its header, of its styles, and further members."""
    return zipped(
        {
            "mimetype": b"application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {OPEN_NAMESPACES}>"
            f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>{body}</office:body>"
            "</office:document-content>".encode(),
            "styles.xml": f"<office:document-styles {OPEN_NAMESPACES}><office:master-styles><style:master-page>"
            f"<style:header>{header}</style:header></style:master-page></office:master-styles>"
            "</office:document-styles>".encode(),
            "META-INF/manifest.xml": f"<m>{manifest}</m>".encode(),
            **(members or {}),
        }
    )


def twice(first: bytes, second: bytes) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        warnings.simplefilter("ignore")
        for data in (first, second):
            with zipfile.ZipFile(io.BytesIO(data)) as package:
                for name in package.namelist():
                    new.writestr(name, package.read(name))
    return out.getvalue()


def marked_encrypted(package: bytes) -> bytes:
    """A ZIP file whose first member is said to be encrypted."""
    return _changed(package, local=6, listed=8, value=1)


def with_method(package: bytes, method: int) -> bytes:
    """A ZIP file whose first member is packed in a way that nobody knows."""
    return _changed(package, local=8, listed=10, value=method)


def _changed(package: bytes, *, local: int, listed: int, value: int) -> bytes:
    changed = bytearray(package)
    struct.pack_into("<H", changed, local, value)
    struct.pack_into("<H", changed, package.index(b"PK\x01\x02") + listed, value)
    return bytes(changed)
