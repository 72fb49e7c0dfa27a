"""Packages of Office and LibreOffice, and ZIP files that say one thing twice."""

import io
import struct
import warnings
import zipfile

from tests.convert.files import docx_file, repacked, zipped

RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
NAMESPACES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
)


def docx_with(kind: str, body: str) -> bytes:
    xml = f"<?xml version='1.0'?><w:{kind} {NAMESPACES}>{body}</w:{kind}>"
    return docx_with_member(f"{kind}1.xml", kind, xml.encode())


def docx_with_member(name: str, kind: str, data: bytes) -> bytes:
    package, listed = docx_file(("Normal", "We pay in a month.")), "word/_rels/document.xml.rels"
    with zipfile.ZipFile(io.BytesIO(package)) as members:
        relations, types = members.read(listed).decode(), members.read("[Content_Types].xml").decode()
    relation = f'<Relationship Id="rId99" Type="{RELATIONS}/{kind}" Target="{name}"/></Relationships>'
    override = f'<Override PartName="/word/{name}" ContentType="application/octet-stream"/></Types>'
    return repacked(
        package,
        {
            listed: relations.replace("</Relationships>", relation).encode(),
            "[Content_Types].xml": types.replace("</Types>", override).encode(),
            f"word/{name}": data,
        },
    )


P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
PACKAGE_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def pptx(*slides: str, beside: tuple[str, bytes] | None = None) -> bytes:
    """A PPTX of slides, each the XML of its shapes; the first slide relates to one more part: (kind, content)."""
    main = f"{RELATIONS}/officeDocument"
    entries = "".join(f'<p:sldId r:id="rId{number}"/>' for number in range(1, len(slides) + 1))
    head = f'{P} {NAMESPACES} xmlns:r="{RELATIONS}"'
    members = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="bin" ContentType="application/octet-stream"/></Types>',
        "_rels/.rels": relations((main, "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {head}><p:sldIdLst>{entries}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(
            *((f"{RELATIONS}/slide", f"slides/slide{number}.xml") for number in range(1, len(slides) + 1))
        ),
        **{
            f"ppt/slides/slide{number}.xml": f"<p:sld {head}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
            for number, shapes in enumerate(slides, start=1)
        },
    }
    packed = {name: text.encode() for name, text in members.items()}
    if beside is not None:
        kind, data = beside
        ending = "xml" if data.startswith(b"<") else "bin"
        packed |= {
            "ppt/slides/_rels/slide1.xml.rels": relations((f"{RELATIONS}/{kind}", f"../beside.{ending}")).encode(),
            f"ppt/beside.{ending}": data,
        }
    return zipped(packed)


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


OPEN_NAMESPACES = (
    " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{full}:1.0"'
        for name, full in {
            "office": "office",
            "text": "text",
            "table": "table",
            "draw": "drawing",
            "style": "style",
            "form": "form",
            "fo": "xsl-fo-compatible",
            "svg": "svg-compatible",
        }.items()
    )
    + " "
    + " ".join(
        f'xmlns:{name}="{address}"'
        for name, address in {
            "xlink": "http://www.w3.org/1999/xlink",
            "dc": "http://purl.org/dc/elements/1.1/",
            "math": "http://www.w3.org/1998/Math/MathML",
            "field": "urn:openoffice:names:experimental:ooo-ms-interop:xmlns:field:1.0",
            "loext": "urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0",
        }.items()
    )
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
