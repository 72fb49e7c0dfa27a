"""What a PDF page shows besides its text layer: pictures, drawn shapes, covered text, and layers that are off."""

import ctypes
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium

FORM_DEPTH = 5
"""How deep forms inside forms of a page are looked into."""
MAX_OBJECTS = 10_000
"""Objects of a page that are looked at."""
BOX_SEGMENTS = 16
"""Most segments of a path that is a line, a box or a circle."""
LINE_POINTS, LINE_SHARE, LINE_LENGTH = 2.0, 0.25, 3.0
"""Greatest height in points of a line that strikes text out; a higher one has at most that share of the text's height,
and is so many times longer than high."""
BOX_POINTS = (5.0, 24.0)
"""Least and greatest side of a drawn check box."""
RING_SEGMENTS, RING_SHARE, MAX_RINGS = 200, 0.98, 1000
"""Most segments of a rounded box or a button, least distance of its line from its middle, as a share of half its side,
and most of them on a page: a chart has more points."""
TOLERANCE_POINTS, TOLERANCE_LINES = 3.0, 1.25
"""How far such a line juts out of its text at most: in points, or so many times its own height if that is more."""
COVER_POINTS = 4.0
"""Least side of a shape that may cover text."""
SQUARE_SHARE = 0.8
"""Least share of the longer side that the shorter one of a check box has."""
BORDER_SEGMENTS = 5
"""Fewest segments of a rectangle; a tick or a cross has fewer."""
STRIKE_BAND = (0.25, 0.7)
"""Where a line crosses a text that is struck out, as shares of the text's height."""
MIN_PICTURE_PIXELS = 8
"""Least side of a picture that can show a letter."""
UNSEEN_MODES = (pdfium.FPDF_TEXTRENDERMODE_INVISIBLE, pdfium.FPDF_TEXTRENDERMODE_CLIP)
"""How texts are drawn that nobody sees."""
LAYER_MARK = "OC"
RENDER_SCALE = 0.5
"""Pixels for each point of a page that is compared with its text layer."""
BLOCK_PIXELS = 4
EDGE_CONTRAST = 40
"""Least difference between neighbouring pixels at the edge of a letter, of 255."""
BLANK_CONTRAST = 8
"""Greatest difference between the pixels of a picture that shows nothing."""
BLOCK_EDGES = 2
"""Fewest edges in a block that shows letters; a speck has one."""


class Box(NamedTuple):
    """A rectangle on a page, in points from the lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def width(self) -> float:
        """Its width, 0 if it is empty."""
        return max(0.0, self.right - self.left)

    @property
    def height(self) -> float:
        """Its height, 0 if it is empty."""
        return max(0.0, self.top - self.bottom)

    @property
    def area(self) -> float:
        """Its area in square points."""
        return self.width * self.height

    @property
    def center(self) -> tuple[float, float]:
        """The point in its middle."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def common(self, other: "Box") -> "Box":
        """The part that it shares with another box; its area is 0 if there is none."""
        return Box(
            max(self.left, other.left),
            max(self.bottom, other.bottom),
            min(self.right, other.right),
            min(self.top, other.top),
        )

    def union(self, other: "Box") -> "Box":
        """The smallest box that holds both."""
        return Box(
            min(self.left, other.left),
            min(self.bottom, other.bottom),
            max(self.right, other.right),
            max(self.top, other.top),
        )

    def grown(self, points: float) -> "Box":
        """The box with a margin around it."""
        return Box(self.left - points, self.bottom - points, self.right + points, self.top + points)

    def holds(self, point: tuple[float, float]) -> bool:
        """Whether a point lies in it."""
        return self.left <= point[0] <= self.right and self.bottom <= point[1] <= self.top


class Path(NamedTuple):
    """A line, box or circle, with its position in the order of drawing."""

    box: Box
    order: int
    num_segments: int
    handle: Any


@dataclass(slots=True)
class Shapes:
    """The objects of a page by their kind."""

    is_blank: bool = True
    pictures: list[Box] = field(default_factory=list)
    """Pictures that are large enough to show a letter."""
    covers: list[Path] = field(default_factory=list)
    """Shapes and pictures that hide a text drawn before them if they are opaque."""
    paths: list[Path] = field(default_factory=list)
    texts: list[tuple[Any, Any, int]] = field(default_factory=list)
    """Text objects, with the matrices that lead from their form to the page and their order of drawing."""
    curves: list[Path] = field(default_factory=list)
    """Shapes that are more than boxes, and as small as check boxes or what is drawn in them."""
    num_curves: int = 0
    """Segments of shapes that are more than boxes."""


def read_shapes(page: Any) -> Shapes:
    """Collects what is drawn on a page."""
    shapes = Shapes()
    for order, (handle, kind, matrix) in enumerate(_objects(page, pdfium.FPDFPage_CountObjects, matrix=None)):
        shapes.is_blank &= kind == pdfium.FPDF_PAGEOBJ_FORM
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            shapes.texts.append((handle, matrix, order))
        elif kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            box = _bounds(handle, matrix)
            shapes.covers.append(Path(box, order, 0, handle))
            width, height = ctypes.c_uint(), ctypes.c_uint()
            is_known = pdfium.FPDFImageObj_GetImagePixelSize(handle, width, height)
            if not is_known or min(width.value, height.value) >= MIN_PICTURE_PIXELS:
                shapes.pictures.append(box)
        elif kind == pdfium.FPDF_PAGEOBJ_PATH:
            _add_path(shapes, handle, matrix, order)
        if order > MAX_OBJECTS:
            break
    return shapes


def _objects(parent: Any, count: Any, *, matrix: Any, depth: int = 1) -> Iterator[tuple[Any, int, Any]]:
    """Objects of a page with their kinds; those of a form follow it, with the matrix that leads to the page."""
    get = pdfium.FPDFPage_GetObject if count is pdfium.FPDFPage_CountObjects else pdfium.FPDFFormObj_GetObject
    for index in range(count(parent)):
        handle = get(parent, index)
        kind = pdfium.FPDFPageObj_GetType(handle)
        yield handle, kind, matrix
        if kind == pdfium.FPDF_PAGEOBJ_FORM and depth < FORM_DEPTH:
            raw = pdfium.FS_MATRIX()
            pdfium.FPDFPageObj_GetMatrix(handle, raw)
            inner = pypdfium2.PdfMatrix.from_raw(raw)
            inner = inner.multiply(matrix) if matrix else inner
            yield from _objects(handle, pdfium.FPDFFormObj_CountObjects, matrix=inner, depth=depth + 1)


def _bounds(handle: Any, matrix: Any) -> Box:
    sides = [ctypes.c_float() for _ in range(4)]
    pdfium.FPDFPageObj_GetBounds(handle, *sides)
    box = Box(*(side.value for side in sides))
    return Box(*matrix.on_rect(*box)) if matrix else box


def is_blank_picture(picture: Any) -> bool:
    """Whether a picture has one colour alone, or can't be decoded."""
    handle = pdfium.FPDFImageObj_GetBitmap(picture)
    return not handle or np.ptp(pypdfium2.PdfBitmap.from_raw(handle).to_numpy()) <= BLANK_CONTRAST


def is_text_on_top(shapes: Shapes) -> bool:
    """Whether people see all texts of a page: none is invisible, or was drawn before a picture that is over it."""
    pictures = [cover for cover in shapes.covers if not cover.num_segments]
    for handle, matrix, order in shapes.texts:
        if pdfium.FPDFTextObj_GetTextRenderMode(handle) in UNSEEN_MODES:
            return False
        center = _bounds(handle, matrix).center
        if any(picture.order > order and picture.box.holds(center) for picture in pictures):
            return False
    return True


@contextmanager
def without_texts(shapes: Shapes) -> Iterator[None]:
    """Keeps the texts of a page from being drawn."""
    for handle, _, _ in shapes.texts:
        pdfium.FPDFPageObj_SetIsActive(handle, False)
    yield
    for handle, _, _ in shapes.texts:
        pdfium.FPDFPageObj_SetIsActive(handle, True)


def _add_path(shapes: Shapes, handle: Any, matrix: Any, order: int) -> None:
    num_segments = pdfium.FPDFPath_CountSegments(handle)
    path = Path(_bounds(handle, matrix), order, num_segments, handle)
    if num_segments > BOX_SEGMENTS:
        shapes.num_curves += num_segments
        if max(path.box.width, path.box.height) <= BOX_POINTS[1]:
            shapes.curves.append(path)
        return
    shapes.paths.append(path)
    if min(path.box.width, path.box.height) >= COVER_POINTS:
        shapes.covers.append(path)


def hiding_boxes(shapes: Shapes, *, page_area: float, most_share: float) -> list[tuple[Box, set[int]]]:
    """Opaque shapes and pictures that were drawn over some text; not those that fill the page, such as a scan.

    Each has the addresses of the text objects that were drawn before it.
    """
    scans = [box for box in merge_boxes(shapes.pictures) if box.area >= most_share * page_area]
    covers = [
        cover
        for cover in shapes.covers
        if cover.box.area < most_share * page_area
        and (cover.num_segments or not any(scan.holds(cover.box.center) for scan in scans))
    ]
    texts = [(_bounds(handle, matrix), order) for handle, matrix, order in shapes.texts] if covers else []
    covers = [
        cover
        for cover in covers
        if any(order < cover.order and _is_under(box, cover.box) for box, order in texts) and _is_opaque(cover)
    ]
    return [
        (cover.box, {ctypes.addressof(handle.contents) for handle, _, order in shapes.texts if order < cover.order})
        for cover in covers
    ]


def _is_under(text: Box, cover: Box) -> bool:
    shared = text.common(cover)
    return shared.width > 0 and shared.height > text.height / 2


def _is_opaque(cover: Path) -> bool:
    if pdfium.FPDFPageObj_HasTransparency(cover.handle):
        return False
    if not cover.num_segments:
        return True
    fill, has_stroke = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(cover.handle, fill, has_stroke)
    colour = [ctypes.c_uint() for _ in range(4)]
    pdfium.FPDFPageObj_GetFillColor(cover.handle, *colour)
    return bool(fill.value)


def strike_boxes(shapes: Shapes, rects: Sequence[Box]) -> list[Box]:
    """Where lines are drawn through words: in the middle of a text, and hardly longer than it."""
    strikes = list[Box]()
    for path in shapes.paths:
        line = path.box
        if line.width < COVER_POINTS:
            continue
        height = (line.bottom + line.top) / 2
        crossed = [
            rect
            for rect in rects
            if rect.bottom < height < rect.top
            and line.height <= max(LINE_POINTS, min(LINE_SHARE * rect.height, line.width / LINE_LENGTH))
            and STRIKE_BAND[0] < (height - rect.bottom) / rect.height < STRIKE_BAND[1]
            and line.common(rect).width > 0
        ]
        if not crossed:
            continue
        text = reduce(Box.union, crossed)
        around = text.grown(max(TOLERANCE_POINTS, TOLERANCE_LINES * line.height))
        if around.left < line.left and line.right < around.right:
            strikes.append(Box(line.left - 1, text.bottom, line.right + 1, text.top))
    return strikes


def drawn_check_boxes(shapes: Shapes, rects: Sequence[Box]) -> list[tuple[Box, bool]]:
    """Drawn squares or circles, each with whether something is drawn in it; none if all are empty.

    Rounded ones with a text in them, which are in `rects`, are parts of a diagram.
    """
    squares = [path for path in shapes.paths if path.num_segments >= BORDER_SEGMENTS and _is_square(path.box)]
    boxes = [(square.box, any(_is_tick(path, square) for path in shapes.paths)) for square in squares]
    holders = [box for box, is_ticked in boxes if is_ticked]
    inner = {box for box, _ in boxes for holder in holders if box != holder and holder.holds(box.center)}
    boxes = [each for each in boxes if each[0] not in inner] if holders else []
    return boxes + _rounded_boxes(shapes, rects)


def _rounded_boxes(shapes: Shapes, rects: Sequence[Box]) -> list[tuple[Box, bool]]:
    """Boxes with round corners and buttons, as browsers print them: the border and the ground are separate shapes.

    Empty ones that are larger or smaller than all others are bullets of a list.
    """
    rings = [path for path in shapes.curves if _is_square(path.box) and _is_ring(path)]
    if len(rings) > MAX_RINGS:
        return []
    rings = [ring for ring in rings if not any(rect.common(ring.box).area for rect in rects)]
    boxes = dict[Box, bool]()
    for ring in sorted(rings, key=lambda ring: -ring.box.area):
        outer = next((box for box in boxes if box.holds(ring.box.center)), ring.box)
        is_ticked = any(_is_tick(path, ring) for path in (*shapes.paths, *shapes.curves))
        boxes[outer] = boxes.get(outer, False) or is_ticked
    widths = [box.width for box, is_ticked in boxes.items() if is_ticked]
    return [each for each in boxes.items() if any(_is_alike(each[0].width, width) for width in widths)]


def _is_alike(width: float, other: float) -> bool:
    return min(width, other) >= SQUARE_SHARE * max(width, other)


def _is_square(box: Box) -> bool:
    shorter, longer = sorted((box.width, box.height))
    return BOX_POINTS[0] <= shorter >= SQUARE_SHARE * longer and longer <= BOX_POINTS[1]


def _is_ring(path: Path) -> bool:
    """Whether a path runs around its middle, as a circle and a box with round corners do, and hardly a letter."""
    if path.num_segments > RING_SEGMENTS:
        return False
    across, up = ctypes.c_float(), ctypes.c_float()
    points = np.empty((path.num_segments, 2))
    for index in range(path.num_segments):
        pdfium.FPDFPathSegment_GetPoint(pdfium.FPDFPath_GetPathSegment(path.handle, index), across, up)
        points[index] = across.value, up.value
    half_sides = np.ptp(points, axis=0) / 2
    if not half_sides.all():
        return False
    from_middle = (points - points.min(axis=0) - half_sides) / half_sides
    return bool(np.hypot(*from_middle.T).min() >= RING_SHARE)


def _is_tick(path: Path, square: Path) -> bool:
    is_border = path.num_segments >= BORDER_SEGMENTS and path.box.width > SQUARE_SHARE * square.box.width
    return (
        path.order > square.order
        and not is_border
        and square.box.holds(path.box.center)
        and path.box.width <= 2 * square.box.width
        and max(path.box.width, path.box.height) > square.box.width / 4
    )


def merge_boxes(boxes: Iterable[Box]) -> list[Box]:
    """Joins boxes that touch one another, such as the strips of a scanned page."""
    merged = list[Box]()
    for box in boxes:
        joined = box
        while touching := next((each for each in merged if joined.grown(1).common(each).area > 0), None):
            merged.remove(touching)
            joined = joined.union(touching)
        merged.append(joined)
    return merged


class PageInk:
    """Where a page, drawn small, shows edges as letters do."""

    def __init__(self, page: Any) -> None:
        rotation = page.get_rotation()
        page.set_rotation(0)
        left, bottom, _, top = page.get_bbox()
        pixels = _small_picture(page)
        page.set_rotation(rotation)
        pixels = pixels.reshape(pixels.shape[:2]).astype(np.int16)
        edges = np.abs(np.diff(pixels, axis=1)) > EDGE_CONTRAST
        rows, columns = (size // BLOCK_PIXELS for size in edges.shape)
        edges = edges[: rows * BLOCK_PIXELS, : columns * BLOCK_PIXELS]
        blocks = edges.reshape(rows, BLOCK_PIXELS, columns, BLOCK_PIXELS).sum(axis=(1, 3))
        self._has_edges = blocks >= BLOCK_EDGES
        self._left, self._top, self._bottom = left, top, bottom

    def unread_blocks(self, box: Box, rects: Iterable[Box]) -> tuple[int, int]:
        """Counts the blocks of a box that show edges: those away from the text layer, and all."""
        covered = np.zeros_like(self._has_edges)
        for rect in rects:
            covered[self._blocks(rect.grown(rect.height / 2))] = True
        edges, covered = self._has_edges[self._blocks(box)], covered[self._blocks(box)]
        return int((edges & ~covered).sum()), int(edges.sum())

    def _blocks(self, box: Box) -> tuple[slice, slice]:
        points = BLOCK_PIXELS / RENDER_SCALE
        rows = slice(max(0, int((self._top - box.top) / points)), max(0, int((self._top - box.bottom) / points) + 1))
        left, right = ((side - self._left) / points for side in (box.left, box.right))
        return rows, slice(max(0, int(left)), max(0, int(right) + 1))


def _small_picture(page: Any) -> Any:
    """Draws a page in grey. Annotations that show something were made part of the page before."""
    return page.render(scale=RENDER_SCALE, grayscale=True, draw_annots=False, may_draw_forms=False).to_numpy()


def remove_hidden_layers(page: Any) -> list[str] | None:
    """Takes the objects of layers that are off out of a page; returns their texts, None if there are no objects.

    Whether a layer is off is seen by drawing its objects alone.
    """
    groups = defaultdict[str, list[Any]](list)
    handles = [pdfium.FPDFPage_GetObject(page, index) for index in range(pdfium.FPDFPage_CountObjects(page))]
    for number, handle in enumerate(handles):
        kind, name = pdfium.FPDFPageObj_GetType(handle), _layer_name(handle)
        if name is not None or kind == pdfium.FPDF_PAGEOBJ_FORM:
            groups[f"{LAYER_MARK} {name}" if name is not None else f"form {number}"].append(handle)
    hidden = [objects for objects in groups.values() if _is_hidden(page, handles, objects)]
    for handle in handles:
        pdfium.FPDFPageObj_SetIsActive(handle, True)
    if not hidden:
        return None
    removed, page_text = [*chain.from_iterable(hidden)], page.get_textpage()
    texts = [_text_of(handle, page_text) for handle, kind in _with_inner(removed) if kind == pdfium.FPDF_PAGEOBJ_TEXT]
    page_text.close()
    for handle in removed:
        pdfium.FPDFPage_RemoveObject(page, handle)
        pdfium.FPDFPageObj_Destroy(handle)
    return texts


def _with_inner(objects: Sequence[Any]) -> list[tuple[Any, int]]:
    """Returns objects and those in forms among them, with their kinds."""
    inner = [(handle, pdfium.FPDFPageObj_GetType(handle)) for handle in objects]
    for form in [handle for handle, kind in inner if kind == pdfium.FPDF_PAGEOBJ_FORM]:
        inner += [each[:2] for each in _objects(form, pdfium.FPDFFormObj_CountObjects, matrix=None)]
    return inner


def _text_of(handle: Any, page_text: Any) -> str:
    num_bytes = pdfium.FPDFTextObj_GetText(handle, page_text, None, 0)
    text = (pdfium.FPDF_WCHAR * (num_bytes // 2))()
    pdfium.FPDFTextObj_GetText(handle, page_text, text, num_bytes)
    return bytes(text).decode("utf-16-le", "replace").rstrip("\0")


def _is_hidden(page: Any, handles: Sequence[Any], objects: Sequence[Any]) -> bool:
    """Whether objects draw nothing. Text that is invisible on purpose, as under a scan, tells nothing of its layer."""
    inner = _with_inner(objects)
    texts = [handle for handle, kind in inner if kind == pdfium.FPDF_PAGEOBJ_TEXT]
    has_picture = any(kind == pdfium.FPDF_PAGEOBJ_IMAGE for _, kind in inner)
    modes = {pdfium.FPDFTextObj_GetTextRenderMode(text) for text in texts}
    if pdfium.FPDF_TEXTRENDERMODE_INVISIBLE in modes or not (texts or has_picture):
        return False
    for handle in handles:
        pdfium.FPDFPageObj_SetIsActive(handle, handle in objects)
    return not np.ptp(_small_picture(page))


def _layer_name(handle: Any) -> str | None:
    """The name of the layer that an object belongs to, if any."""
    for index in range(pdfium.FPDFPageObj_CountMarks(handle)):
        mark = pdfium.FPDFPageObj_GetMark(handle, index)
        if _mark_text(pdfium.FPDFPageObjMark_GetName, mark) == LAYER_MARK:
            return _mark_text(pdfium.FPDFPageObjMark_GetParamStringValue, mark, b"Name")
    return None


def _mark_text(function: Any, *arguments: Any) -> str:
    num_bytes = ctypes.c_ulong()
    function(*arguments, None, 0, num_bytes)
    text = (pdfium.FPDF_WCHAR * (num_bytes.value // 2))()
    function(*arguments, text, num_bytes.value, num_bytes)
    return bytes(text).decode("utf-16-le", "replace").rstrip("\0")
