"""Messages that Outlook packed for a mail (TNEF), and its mailboxes (PST)."""

import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memagent_batch.data.ingest.counts.outlook import pst_contents
from memagent_batch.data.ingest.counts.words import Given
from memagent_batch.data.ingest.readers.converter import Attachment, Part
from memagent_batch.data.ingest.readers.outlook_files import PstConverter
from tests.convert.rows import RowsOf

SUBJECT, BODY, CLASS, SENDER, ADDRESS, FILE = 0x0037, 0x1000, 0x001A, 0x0C1A, 0x5D01, 0x3701
KIND, RECIPIENT_NAME, RECIPIENT_ADDRESS, LONG_NAME, METHOD = 0x0C15, 0x3001, 0x39FE, 0x3707, 0x3705
NOTE = b"IPM.Microsoft Mail.Note\0"
Values = Mapping[int, str | int | bytes]


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def properties(values: Values) -> bytes:
    """Properties as TNEF lists them; numbers above 0x8000 have the name 0x8208."""
    data = struct.pack("<I", len(values))
    for number, value in values.items():
        name = bytes(16) + struct.pack("<II", 0, 0x8208) if number >= 0x8000 else b""
        if isinstance(value, int):
            data += struct.pack("<HH", 3, number) + name + struct.pack("<I", value)
        else:
            kind, content = (0x1F, f"{value}\0".encode("utf-16-le")) if isinstance(value, str) else (0x0102, value)
            kind = 0x000D if isinstance(value, bytes) and value[16:20] == b"\x78\x9f\x3e\x22" else kind
            data += struct.pack("<HH", kind, number) + name + struct.pack("<II", 1, len(content)) + padded(content)
    return data


def tnef(*attributes: tuple[int, bytes]) -> bytes:
    packed = (struct.pack("<BII", 1, number, len(data)) + data + b"\0\0" for number, data in attributes)
    return b"\x78\x9f\x3e\x22\1\0" + b"".join(packed)


def message(values: Values, *attachments: Sequence[tuple[int, bytes]], kind: bytes = NOTE) -> bytes:
    recipient = properties({KIND: 1, RECIPIENT_NAME: "Bob Miller", RECIPIENT_ADDRESS: "bob@mill.example"})
    own = [(0x8008, kind), (0x9003, properties(values)), (0x9004, struct.pack("<I", 1) + recipient)]
    return tnef(*own, *((number, data) for attached in attachments for number, data in ((0x9002, b""), *attached)))


def test_packed_message_is_read_with_its_files_and_inner_messages(rows_of: RowsOf) -> None:
    inner = message({SUBJECT: "Inner", BODY: "The inner fee is 615."})
    data = message(
        {SUBJECT: "Müller’s lease", BODY: "The rent is 4,410.", SENDER: "Ann", ADDRESS: "ann@mill.example"},
        [(0x8010, b"plan.txt\0"), (0x800F, b"The plan is to wait.")],
        [(0x9005, properties({LONG_NAME: "first.msg", METHOD: 5, FILE: bytes(16) + inner}))],
    )
    rows = rows_of("winmail.dat", data)
    assert [row["status"] for row in rows] == ["ok"] * 3
    text = rows[0]["text"]
    shown = ("From: Ann <ann@mill.example>", "To: Bob Miller <bob@mill.example>", "Subject: Müller’s lease", "4,410.")
    assert [piece for piece in shown if piece not in text] == []
    assert (rows[1]["locator"], rows[1]["text"]) == ("attachment plan.txt, text", "The plan is to wait.")
    assert "The inner fee is 615." in rows[2]["text"]


def test_fields_of_a_packed_invitation_are_read(rows_of: RowsOf) -> None:
    data = message({SUBJECT: "Board", 0x8005: "Room 4"}, kind=b"IPM.Microsoft Schedule.MtgReq\0")
    (row,) = rows_of("winmail.dat", data)
    assert (row["status"], "Location: Room 4" in row["text"]) == ("ok", True)


@pytest.mark.parametrize("kept", [10, 60, 300])
def test_packed_message_that_is_cut_fails(rows_of: RowsOf, kept: int) -> None:
    data = message({SUBJECT: "Lease", BODY: "The rent is 4,410." * 40})
    rows = rows_of("winmail.dat", data[:kept])
    assert any(row["status"] in ("failed", "empty") for row in rows)


def entries(values: Values) -> Any:
    def entry(number: int, value: str | int | bytes) -> Any:
        if isinstance(value, int):
            return SimpleNamespace(entry_type=number, value_type=3, data=struct.pack("<I", value))
        kind, data = (0x1F, value.encode("utf-16-le")) if isinstance(value, str) else (0x0102, value)
        return SimpleNamespace(entry_type=number, value_type=kind, data=data)

    return SimpleNamespace(entries=[entry(*item) for item in values.items()])


def item(values: Values, *attachments: Any, recipients: Any = None) -> Any:
    rows = entries(values)
    return SimpleNamespace(
        number_of_record_sets=1,
        get_record_set=lambda _: rows,
        number_of_attachments=len(attachments),
        get_attachment=attachments.__getitem__,
        recipients=recipients,
    )


def folder(name: str, messages: Sequence[Any], *folders: Any) -> Any:
    return SimpleNamespace(
        name=name,
        number_of_sub_messages=len(messages),
        get_sub_message=messages.__getitem__,
        number_of_sub_folders=len(folders),
        get_sub_folder=folders.__getitem__,
    )


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mailbox as libpff gives it: nothing writes such files on Linux."""
    file = item({LONG_NAME: "plan.txt"})
    file.size, file.read_buffer = 8, lambda size: b"The plan"[:size]
    recipients = SimpleNamespace(record_sets=[entries({KIND: 3, RECIPIENT_ADDRESS: "hidden@mill.example"})])
    note: Values = {CLASS: "IPM.Note", SUBJECT: "\1\5RE: Lease", BODY: "The rent is 4,410."}
    meeting: Values = {CLASS: "IPM.Appointment", SUBJECT: "Board", 0x8005: "Room 4"}
    settings: Values = {CLASS: "IPM.Microsoft.ScheduleData.FreeBusy", SUBJECT: "LocalFreebusy"}
    names = SimpleNamespace(record_sets=[entries({3: struct.pack("<IHH", 0x8208, 6, 5)})])
    inbox = folder("Inbox", [item(note, file, recipients=recipients)])
    root = folder("", [], inbox, folder("Calendar", [item(meeting), item(settings)]))
    opened = SimpleNamespace(open=lambda _: None, root_folder=root, name_to_id_map=names)
    monkeypatch.setitem(sys.modules, "pypff", SimpleNamespace(file=lambda: opened))
    return Path("box.pst")


def test_mailbox_has_a_part_for_each_message(mailbox: Path) -> None:
    items, given = [*PstConverter().convert(mailbox)], Given()
    parts = [item for item in items if isinstance(item, Part)]
    assert [part.locator for part in parts] == ["message 1", "message 2"]
    assert "Bcc: hidden@mill.example\nSubject: RE: Lease" in parts[0].text
    assert "Location: Room 4" in parts[1].text
    (attached,) = (item for item in items if isinstance(item, Attachment))
    assert (attached.number, attached.locator, attached.data) == ("1-1", "message 1, attachment plan.txt", b"The plan")
    given.add_text(parts[0].text)
    missing = [each for each in given.missing(pst_contents(mailbox)) if "property" in each.place]
    assert {each.place for each in missing} >= {"message 2, property 0037", "message 2, property 8005"}


def test_mailbox_that_is_damaged_fails(rows_of: RowsOf) -> None:
    (row,) = rows_of("a.pst", b"!BDN" + bytes(2000))
    assert (row["status"], "is it whole?" in row["reason"]) == ("failed", True)
